use std::collections::HashMap;
use std::fmt::Display;

use tracing::Span;

use super::destination::Messages;
use super::remote;
use super::span::fail;
use crate::message::{CORRELATION_ID, Envelope};

/// The spans of one operation on many messages: one for each trace that the messages belong to.
///
/// A trace's span is the child of the first creating span and linked to all of them, so each
/// message's operation is part of its own trace, and a transaction that enqueued many messages has
/// one span for all that went together. Messages whose sender records no trace share one span
/// without a parent.
#[derive(Default)]
pub(super) struct ByTrace {
    spans: Vec<Traced>,
    /// For each message which span speaks of it.
    of: Vec<usize>,
}

struct Traced {
    span: Span,
    failed: bool,
}

/// The messages of one trace, or all without one.
#[derive(Default)]
pub(super) struct Group<'a> {
    /// How many, malformed ones included.
    count: usize,
    envelopes: Vec<&'a Envelope>,
}

impl ByTrace {
    /// Begins the spans. A malformed message is `None`.
    pub(super) fn begin<'a>(
        messages: impl Iterator<Item = Option<&'a Envelope>>,
        make: impl Fn(&Group<'a>) -> Span,
    ) -> Self {
        let mut groups: Vec<(Option<u128>, Group<'a>)> = Vec::new();
        let mut numbers: HashMap<Option<u128>, usize> = HashMap::new();
        let mut of = Vec::new();
        for message in messages {
            let trace = message.and_then(|envelope| remote::recorded_trace(&envelope.headers));
            let number = *numbers.entry(trace).or_insert_with(|| {
                groups.push((trace, Group::default()));
                groups.len() - 1
            });
            groups[number].1.count += 1;
            groups[number].1.envelopes.extend(message);
            of.push(number);
        }
        let begin = |(trace, group): (Option<u128>, Group<'a>)| {
            let span = make(&group);
            if trace.is_some() {
                let creations = || group.envelopes.iter().map(|envelope| &envelope.headers);
                remote::continue_from(&span, creations().next().expect("a trace's message"));
                creations().for_each(|headers| remote::link(&span, headers));
            }
            Traced {
                span,
                failed: false,
            }
        };
        let spans = groups.into_iter().map(begin).collect();
        Self { spans, of }
    }

    /// Says that the operation failed for one message; of a trace's failures the first one is kept.
    pub(super) fn fail(&mut self, message: usize, error_type: &'static str, text: &dyn Display) {
        let Some(traced) = self.of.get(message).map(|&number| &mut self.spans[number]) else {
            return;
        };
        if !traced.failed {
            traced.failed = true;
            fail(&traced.span, error_type, text);
        }
    }

    /// Says that the operation failed for all.
    pub(super) fn fail_all(&mut self, error_type: &'static str, text: &dyn Display) {
        (0..self.of.len()).for_each(|message| self.fail(message, error_type, text));
    }
}

impl<'a> Group<'a> {
    pub(super) fn messages(&self) -> Messages<'a> {
        match self.envelopes.as_slice() {
            [one] if self.count == 1 => Messages::One(one),
            [] => Messages::Mixed,
            [first, rest @ ..] => {
                let is_of_type = |envelope: &&Envelope| envelope.message_type == first.message_type;
                match rest.iter().all(is_of_type) {
                    true => Messages::Type(first.message_type.as_str()),
                    false => Messages::Mixed,
                }
            }
        }
    }

    /// `messaging.batch.message_count`: of batches only.
    pub(super) fn batch_count(&self) -> Option<u64> {
        (self.count > 1).then_some(self.count as u64)
    }

    /// `messaging.message.id`, if it is one message.
    pub(super) fn message_id(&self) -> Option<String> {
        self.one().map(|envelope| envelope.id.to_string())
    }

    /// `messaging.message.conversation_id`, if it is one message.
    pub(super) fn conversation_id(&self) -> Option<&'a str> {
        self.one()
            .and_then(|envelope| envelope.headers.get(CORRELATION_ID))
    }

    fn one(&self) -> Option<&'a Envelope> {
        match self.messages() {
            Messages::One(envelope) => Some(envelope),
            _ => None,
        }
    }
}
