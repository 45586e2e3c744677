use std::fmt::Display;

use crate::broker::{BrokerError, BrokerErrorKind};
use crate::store::{StoreError, StoreErrorKind};

/// What a failed operation says of itself in `error.type`: one of few words, and its text.
pub(crate) trait ErrorType: Display {
    /// The word.
    fn error_type(&self) -> &'static str;
}

impl ErrorType for BrokerError {
    fn error_type(&self) -> &'static str {
        match self.kind() {
            BrokerErrorKind::Unavailable => "broker_unavailable",
            BrokerErrorKind::Blocked => "broker_blocked",
            BrokerErrorKind::Timeout => "timeout",
            BrokerErrorKind::Closed => "channel_closed",
            BrokerErrorKind::Topology => "broker_topology",
            BrokerErrorKind::Configuration => "broker_configuration",
        }
    }
}

impl ErrorType for StoreError {
    fn error_type(&self) -> &'static str {
        match self.kind() {
            StoreErrorKind::Unavailable => "database_unavailable",
            StoreErrorKind::Contention => "database_contention",
            StoreErrorKind::Schema => "database_schema",
            StoreErrorKind::Rejected => "database_rejected",
            StoreErrorKind::Corrupt => "database_corrupt",
        }
    }
}
