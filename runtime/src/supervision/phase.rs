use tokio::sync::watch;

/// How far the runtime is on its way from start to stop. It only moves forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Everything runs.
    #[default]
    Run,
    /// Nothing new is taken; what is in flight is finished.
    Drain,
    /// What has not finished is dropped where it stands.
    Abort,
}

impl Phase {
    /// Moves a runtime on to this phase, if it is not that far already.
    pub(crate) fn advance(self, phase: &watch::Sender<Self>) {
        phase.send_if_modified(|phase| {
            let forward = *phase < self;
            *phase = (*phase).max(self);
            forward
        });
    }
}
