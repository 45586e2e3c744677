use diesel::sql_types::{Array, BigInt, Bool, Nullable, Text, Timestamptz};

use super::parts::without_nul;
use crate::store::postgres::columns::bound;
use crate::store::postgres::statement::Statement;
use crate::store::{LetterFilter, LetterState, Origin};

/// Whether a letter `d` is one of those that a filter chooses: $1 to $13, as [`filtered`] binds
/// them.
///
/// One text for all filters. What is not asked for is NULL; the planner sees that, and what is
/// asked for, as long as it plans each execution anew, which it does where that pays.
macro_rules! chosen {
    () => {
        "(cardinality($1::bigint[]) = 0 OR d.position = ANY ($1::bigint[]))
  AND ($2::text IS NULL OR d.consumer = $2) AND (NOT $3::boolean OR d.consumer IS NULL)
  AND ($4::text IS NULL OR d.message_type = $4) AND ($5::text IS NULL OR d.ordering_key = $5)
  AND ($6::text IS NULL OR d.message_id = $6) AND ($7::text IS NULL OR d.reason = $7)
  AND ($8::text IS NULL OR d.fingerprint = $8) AND ($9::text IS NULL OR strpos(d.error, $9) > 0)
  AND ($10::timestamptz IS NULL OR d.dead_at >= $10) AND ($11::timestamptz IS NULL OR d.dead_at < $11)
  AND ($12::boolean IS NULL OR d.parked = $12) AND d.state = ANY ($13::text[])"
    };
}
pub(in crate::store::postgres) use chosen;

/// Binds a filter, for letters in these states. A text with NUL looks for what is stored of it.
pub(in crate::store::postgres) fn filtered<'a>(
    text: &'a str,
    filter: &'a LetterFilter,
    states: &[LetterState],
) -> Statement<'a> {
    let part = |part: &'a Option<String>| part.as_deref().map(without_nul);
    let ids: Vec<i64> = filter.ids.iter().map(|letter| letter.0).collect();
    let consumer = match &filter.origin {
        Some(Origin::Consumer(consumer)) => Some(consumer.as_str()),
        _ => None,
    };
    let states: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
    Statement::new(text)
        .bind::<Array<BigInt>, _>(ids)
        .bind::<Nullable<Text>, _>(consumer)
        .bind::<Bool, _>(filter.origin == Some(Origin::Dispatch))
        .bind::<Nullable<Text>, _>(part(&filter.message_type))
        .bind::<Nullable<Text>, _>(part(&filter.key))
        .bind::<Nullable<Text>, _>(part(&filter.message_id))
        .bind::<Nullable<Text>, _>(part(&filter.reason))
        .bind::<Nullable<Text>, _>(part(&filter.fingerprint))
        .bind::<Nullable<Text>, _>(part(&filter.error_contains))
        .bind::<Nullable<Timestamptz>, _>(filter.dead_from.map(bound))
        .bind::<Nullable<Timestamptz>, _>(filter.dead_before.map(bound))
        .bind::<Nullable<Bool>, _>(filter.parked)
        .bind::<Array<Text>, _>(states)
}

/// The states that a filter names.
pub(super) fn states(filter: &LetterFilter) -> &[LetterState] {
    if filter.states.is_empty() {
        &[LetterState::Dead]
    } else {
        &filter.states
    }
}
