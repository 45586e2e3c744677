use crate::exit::Failed;

/// Runs a command until it ends, or until a signal ends it: what it has begun is then rolled back,
/// and files that it made for an editor are removed.
///
/// The signals are caught from here on, so whatever waits for a person or a pipe must do so on a
/// thread of its own.
pub(crate) async fn interruptible(
    command: impl Future<Output = Result<String, Failed>>,
) -> Result<String, Failed> {
    tokio::select! {
        biased;
        outcome = command => outcome,
        signal = signalled() => Err(match signal {
            Ok(signal) => Failed::Interrupted(signal),
            Err(error) => Failed::Io("listen to signals", error),
        }),
    }
}

/// The number of the signal that came first.
#[cfg(unix)]
async fn signalled() -> std::io::Result<u8> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(tokio::select! {
        _ = hangup.recv() => 1,
        _ = interrupt.recv() => 2,
        _ = terminate.recv() => 15,
    })
}

#[cfg(not(unix))]
async fn signalled() -> std::io::Result<u8> {
    tokio::signal::ctrl_c().await.map(|()| 2)
}

/// Waits on a thread of its own for what a person or a pipe gives.
pub(crate) async fn apart<T: Send + 'static>(
    what: &'static str,
    wait: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Failed> {
    let waited = tokio::task::spawn_blocking(wait).await;
    waited
        .unwrap_or_else(|ended| Err(ended.into()))
        .map_err(|error| Failed::Io(what, error))
}
