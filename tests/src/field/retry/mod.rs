//! F16 to F19 and F34: what becomes of messages whose handler fails, in a running actor system.
//! F16's arithmetic is tested beside it, in `retry::backoff` and `retry::policy` of the runtime.

mod crash;
mod dead_queue;
mod killer;
mod nature;
mod odd_errors;
mod overflow;
mod parked;
mod policy;
mod successors;

use posta::Builder;

use crate::world::script::{Script, scripted_consumer};
use crate::world::service::{builder, quick_retry};
use crate::world::{TestDatabase, World};

/// A service with a scripted consumer that tries three times.
fn three_tries<D: TestDatabase>(world: &World<D>, script: &Script) -> Builder<D> {
    let policy = quick_retry().attempts_max(3);
    builder(world).consumer(scripted_consumer::<D>(script).retry(policy))
}
