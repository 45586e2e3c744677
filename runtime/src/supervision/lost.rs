use std::sync::Arc;

use actix::prelude::*;

use super::Phase;
use super::arbiters::Lost;
use super::child::Outcome;
use super::life::Order;
use super::supervisor::{Standing, Supervisor};

/// Arbiters that are lost, with what lives on them.
pub(super) struct LostArbiters(pub(super) Arc<Vec<Lost>>);

impl Message for LostArbiters {
    type Result = ();
}

impl Handler<LostArbiters> for Supervisor {
    type Result = ();

    /// What lives on a lost arbiter counts as ended: it is started again on a fresh one. What it
    /// holds is dropped when its thread comes back, if ever. Only whoever was seen running there
    /// has failed; the others were unlucky, and their budget is theirs. What they share is forgotten:
    /// over a connection a subscription of theirs would go on getting what nobody reads.
    fn handle(&mut self, LostArbiters(lost): LostArbiters, context: &mut Self::Context) {
        for lost in lost.iter() {
            let there: Vec<(Arc<str>, u64)> = self
                .children
                .iter()
                .filter_map(|(name, child)| match &child.standing {
                    Standing::Running(it) if it.seat == lost.seat => Some((name, it)),
                    _ => None,
                })
                .map(|(name, it)| {
                    it.orders
                        .send_replace(Order::End("its arbiter is blocked".to_owned()));
                    (name.clone(), it.number)
                })
                .collect();
            if !there.is_empty() {
                context.spawn((self.forget)().into_actor(self));
            }
            for (name, number) in there {
                let error = match &lost.child {
                    Some(child) if *child == name => {
                        "it does not yield: its arbiter is blocked".to_owned()
                    }
                    child if *self.phase.borrow() < Phase::Drain && self.rebuilding.is_none() => {
                        let by = child.as_deref().unwrap_or("nobody known");
                        tracing::warn!(child = %name, blocked_by = by, "moved to another arbiter");
                        self.launch(&name, context);
                        continue;
                    }
                    _ => "its arbiter is blocked".to_owned(),
                };
                self.ended(&name, number, Outcome::Failed(error), context);
            }
        }
    }
}
