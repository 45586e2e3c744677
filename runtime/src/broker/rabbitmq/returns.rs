use std::collections::HashMap;

use lapin::Confirmation;

/// What the broker gave back of one wave, by message id.
///
/// Over one channel lapin can hang a return on another message's confirm when several are in
/// flight: the one that it names as returned was routed, and the returned one looks acknowledged.
/// The id that the return itself carries is never wrong. So returns are collected from all confirms
/// of a wave first, and matched by id only when the last confirm is in: the broker sends a
/// message's return before its confirm.
#[derive(Debug, Default)]
pub(super) struct Returns {
    by_id: HashMap<String, String>,
}

impl Returns {
    /// Notes the return that a confirm carries, whosever it is; tells whether the confirm itself
    /// was positive.
    pub(super) fn note(&mut self, confirmation: Confirmation) -> bool {
        let positive = confirmation.is_ack();
        if let Some(returned) = confirmation.take_message() {
            let id = returned.delivery.properties.message_id().as_ref();
            let id = id.map(|id| id.as_str().to_owned()).unwrap_or_default();
            let reason = format!(
                "{} {} (exchange {:?}, routing key {:?})",
                returned.reply_code,
                returned.reply_text,
                returned.delivery.exchange.as_str(),
                returned.delivery.routing_key.as_str()
            );
            self.by_id.insert(id, reason);
        }
        positive
    }

    /// The broker's text if it returned the message, which is then no longer among the returns.
    pub(super) fn take(&mut self, id: &str) -> Option<String> {
        self.by_id.remove(id)
    }

    /// Ids that nobody asked for.
    pub(super) fn left(&self) -> Vec<&str> {
        self.by_id.keys().map(String::as_str).collect()
    }
}
