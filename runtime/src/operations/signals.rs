/// The signals that ask a process to end, SIGTERM and SIGINT, from when it is made: between two of
/// them there is no gap in which the system's own answer, death, would hold.
pub(super) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Listens from now on, as long as the process lives.
    ///
    /// # Panics
    /// Outside an actix system.
    pub(super) fn listen() -> Self {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Self {
                terminate: signal(SignalKind::terminate()).expect("SIGTERM can be caught"),
                interrupt: signal(SignalKind::interrupt()).expect("SIGINT can be caught"),
            }
        }
        #[cfg(not(unix))]
        Self {}
    }

    /// Waits for the next one. Cancel-safe.
    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        #[cfg(not(unix))]
        {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}
