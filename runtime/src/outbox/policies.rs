use std::collections::BTreeMap;
use std::fmt;

use super::DispatchPolicy;
use crate::message::MessageType;

/// The dispatch policies of a runtime: one for all message types, and those of single types that
/// take precedence as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatchPolicies {
    /// For every type without a policy of its own.
    pub all: DispatchPolicy,
    /// By message type; whether any code here knows the type does not matter.
    pub by_type: BTreeMap<String, DispatchPolicy>,
}

impl DispatchPolicies {
    /// The policy of a message type; of all of them for a message that does not say its type.
    pub fn of(&self, message_type: Option<&str>) -> &DispatchPolicy {
        message_type
            .and_then(|message_type| self.by_type.get(message_type))
            .unwrap_or(&self.all)
    }

    /// Every rule that these policies break.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let mut mistakes = self.all.mistakes("dispatch");
        for (message_type, policy) in &self.by_type {
            let of = format!("dispatch_for({message_type:?})");
            if let Err(error) = MessageType::new(message_type.as_str()) {
                mistakes.push(format!("{of}: {error}"));
            }
            mistakes.extend(policy.mistakes(&of));
        }
        mistakes
    }
}

impl fmt::Display for DispatchPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.all)?;
        for (message_type, policy) in &self.by_type {
            write!(f, "\n  {message_type}: {policy}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_types_own_policy_takes_precedence_and_names_are_checked() {
        let own = DispatchPolicy::default().attempts_max(3);
        let bad = DispatchPolicy::default().attempts_max(0);
        let by_type = [("order.placed", own), ("no type", bad)];
        let policies = DispatchPolicies {
            by_type: by_type.map(|(name, it)| (name.to_owned(), it)).into(),
            ..DispatchPolicies::default()
        };
        assert_eq!(policies.of(Some("order.placed")), &own);
        assert_eq!(policies.of(Some("order.paid")), &policies.all);
        assert_eq!(policies.of(None), &policies.all);
        assert_eq!(
            policies.mistakes(),
            [
                "dispatch_for(\"no type\"): message type holds the byte 0x20, which is not allowed there",
                "dispatch_for(\"no type\").attempts_max: 0; it must be 1 to 10000",
            ]
        );
    }
}
