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
