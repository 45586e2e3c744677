//! The one place that knows lapin's error kinds: what each means for the caller.

use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::{Error, ErrorKind};

use crate::broker::{BrokerError, BrokerErrorKind};

/// What was being done, as far as the same refusal of the broker means different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Making a connection or a channel.
    Connect,
    /// Declaring, verifying or subscribing: what is missing or different is the topology's fault.
    Provide,
    /// Using what was set up: the channel is gone, whatever the reason.
    Use,
}

/// A failure of lapin's as the broker's, with its text as the source.
pub(super) fn broker_error(
    operation: impl Into<String>,
    purpose: Purpose,
    error: &Error,
) -> BrokerError {
    BrokerError::new(operation, kind(purpose, error)).with_source(text(error))
}

/// The broker's own words where it said something.
pub(super) fn text(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(said) => said.get_message().to_string(),
        ErrorKind::IOError(error) => error.to_string(),
        _ => error.to_string(),
    }
}

fn kind(purpose: Purpose, error: &Error) -> BrokerErrorKind {
    match error.kind() {
        ErrorKind::ProtocolError(said) => said_by_broker(purpose, said),
        ErrorKind::InvalidChannel(_)
        | ErrorKind::InvalidChannelState(..)
        | ErrorKind::FutureCompleted => BrokerErrorKind::Closed,
        // A certificate that is not trusted, or no TLS at the other end, does not mend itself.
        ErrorKind::IOError(error)
            if purpose == Purpose::Connect && error.kind() == std::io::ErrorKind::InvalidData =>
        {
            BrokerErrorKind::Configuration
        }
        ErrorKind::InvalidConnectionState(_)
        | ErrorKind::IOError(_)
        | ErrorKind::RuntimeShutdownError(_)
        | ErrorKind::MissingHeartbeatError
        // The stream of frames is out of step; a new connection begins afresh.
        | ErrorKind::ParsingError(_)
        | ErrorKind::SerialisationError(_) => BrokerErrorKind::Unavailable,
        ErrorKind::ChannelsLimitReached
        | ErrorKind::InvalidProtocolVersion(_)
        | ErrorKind::AuthProviderError(_)
        | ErrorKind::NoDefaultRuntime => BrokerErrorKind::Configuration,
        // Kinds that a later lapin adds: a new connection is the one remedy that is always safe.
        _ => BrokerErrorKind::Unavailable,
    }
}

fn said_by_broker(purpose: Purpose, said: &AMQPError) -> BrokerErrorKind {
    match said.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => BrokerErrorKind::Configuration,
        AMQPErrorKind::Soft(
            AMQPSoftError::NOTFOUND
            | AMQPSoftError::PRECONDITIONFAILED
            | AMQPSoftError::RESOURCELOCKED,
        ) if purpose == Purpose::Provide => BrokerErrorKind::Topology,
        AMQPErrorKind::Soft(_) => BrokerErrorKind::Closed,
        AMQPErrorKind::Hard(
            AMQPHardError::NOTALLOWED | AMQPHardError::NOTIMPLEMENTED | AMQPHardError::INVALIDPATH,
        ) => BrokerErrorKind::Configuration,
        // Forced (a shutdown, an operator), out of resources, an internal error, frames out of
        // step.
        AMQPErrorKind::Hard(_) => BrokerErrorKind::Unavailable,
    }
}

/// How much an error tells, among those that one failure leaves behind: the broker's own words
/// most, a state seen afterwards least.
pub(super) fn weight(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::ProtocolError(_) => 3,
        ErrorKind::MissingHeartbeatError | ErrorKind::IOError(_) => 2,
        ErrorKind::InvalidChannel(_)
        | ErrorKind::InvalidChannelState(..)
        | ErrorKind::InvalidConnectionState(_) => 0,
        _ => 1,
    }
}

/// Whether the failure is of this channel alone, by the broker's word, so that another channel may
/// be opened at once.
pub(super) fn is_soft(error: &Error) -> bool {
    error.is_amqp_soft_error()
}

/// The broker's limit for one message's size in bytes, if the error says that a message was over it
/// (`message size 9 is larger than configured max size 5`).
pub(super) fn message_bytes_max(error: &Error) -> Option<usize> {
    let ErrorKind::ProtocolError(said) = error.kind() else {
        return None;
    };
    let message = said.get_message().as_str();
    let (_, limit) = message
        .contains("message size")
        .then(|| message.rsplit_once("max size "))
        .flatten()?;
    let digits = limit
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(limit.len());
    limit[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soft(kind: AMQPSoftError, text: &str) -> Error {
        ErrorKind::ProtocolError(AMQPError::new(kind.into(), text.into())).into()
    }

    #[test]
    fn what_is_missing_is_the_topologys_fault_only_when_it_is_provided() {
        let missing = soft(
            AMQPSoftError::NOTFOUND,
            "NOT_FOUND - no exchange 'x' in vhost '/'",
        );
        assert_eq!(kind(Purpose::Provide, &missing), BrokerErrorKind::Topology);
        assert_eq!(kind(Purpose::Use, &missing), BrokerErrorKind::Closed);
        assert_eq!(text(&missing), "NOT_FOUND - no exchange 'x' in vhost '/'");
    }

    #[test]
    fn the_brokers_size_limit_is_read_from_its_refusal() {
        let refusal = soft(
            AMQPSoftError::PRECONDITIONFAILED,
            "PRECONDITION_FAILED - message size 2097152 is larger than configured max size 1048576",
        );
        assert_eq!(message_bytes_max(&refusal), Some(1_048_576));
        let other = soft(
            AMQPSoftError::PRECONDITIONFAILED,
            "PRECONDITION_FAILED - unknown delivery tag 7",
        );
        assert_eq!(message_bytes_max(&other), None);
    }
}
