use tokio::sync::watch;

/// A wake-up call to any number of listeners in this process: it says "look again" and carries
/// nothing else.
///
/// Calls coalesce: a listener that was busy for a thousand of them hears one.
#[derive(Clone, Debug)]
pub(crate) struct Wake {
    calls: watch::Sender<u64>,
    /// Called too when the reason is in this process, so that others can be told.
    relay: Option<watch::Sender<u64>>,
}

impl Wake {
    pub(crate) fn new() -> Self {
        Self {
            calls: watch::Sender::new(0),
            relay: None,
        }
    }

    /// A wake whose calls are heard by the listeners of `relay` as well.
    pub(crate) fn relayed_by(relay: &Wake) -> Self {
        Self {
            calls: watch::Sender::new(0),
            relay: Some(relay.calls.clone()),
        }
    }

    /// Calls all listeners, for a reason in this process.
    pub(crate) fn call(&self) {
        self.echo();
        if let Some(relay) = &self.relay {
            relay.send_modify(|calls| *calls = calls.wrapping_add(1));
        }
    }

    /// Calls the listeners in this process only, for a reason in another: it is not relayed back.
    pub(crate) fn echo(&self) {
        self.calls
            .send_modify(|calls| *calls = calls.wrapping_add(1));
    }

    /// A listener that hears every call from now on.
    pub(crate) fn listen(&self) -> WakeListener {
        WakeListener {
            calls: self.calls.subscribe(),
        }
    }
}

/// One listener of a [`Wake`].
#[derive(Clone, Debug)]
pub(crate) struct WakeListener {
    calls: watch::Receiver<u64>,
}

impl WakeListener {
    /// Waits for a call since the last one that was heard. Cancel-safe.
    pub(crate) async fn called(&mut self) {
        if self.calls.changed().await.is_err() {
            // Nobody can call any more: the runtime is going down.
            std::future::pending::<()>().await;
        }
    }

    /// Forgets calls so far: what they announced is about to be looked at. Whether there were any.
    pub(crate) fn hear(&mut self) -> bool {
        let called = self.calls.has_changed().unwrap_or_default();
        self.calls.mark_unchanged();
        called
    }
}
