use crate::message::{CAUSATION_ID, CORRELATION_ID, Envelope, EnvelopeError, MessageId};

/// Which message a transaction handles, if any: what is enqueued in it follows from that message.
#[derive(Clone, Debug, Default)]
pub struct Context {
    causation: Option<MessageId>,
    correlation: Option<String>,
}

impl Context {
    /// The context of handling this message: it is the cause, and its conversation goes on (a
    /// message without a correlation id begins one, with its own id).
    #[must_use]
    pub fn handling(envelope: &Envelope) -> Self {
        let correlation = envelope.headers.get(CORRELATION_ID).map(str::to_owned);
        Self {
            causation: Some(envelope.id),
            correlation: correlation.or_else(|| Some(envelope.id.to_string())),
        }
    }

    /// Writes the context into an envelope's headers.
    pub(crate) fn write(&self, envelope: &mut Envelope) -> Result<(), EnvelopeError> {
        if let Some(causation) = self.causation {
            envelope.headers.set(CAUSATION_ID, causation.to_string())?;
        }
        if let Some(correlation) = &self.correlation {
            envelope.headers.set(CORRELATION_ID, correlation.as_str())?;
        }
        Ok(())
    }
}
