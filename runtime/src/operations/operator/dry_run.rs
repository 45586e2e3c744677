use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use time::{OffsetDateTime, PrimitiveDateTime};

use super::check::KnownHandlers;
use super::{Decodes, HandlerPresence, Operator, OperatorError};
use crate::operations::replay::parse_again;
use crate::store::{
    Database, DeadLetter, DeadLetterStore, LetterFilter, LetterId, LetterState, Origin,
    RecordStore, RedispatchStore, ReplayStore,
};

/// Letters that are read at once: payloads are read with them.
const PAGE: usize = 100;
/// Keys that a dry run names, at most.
const KEYS_MAX: usize = 1_000;
/// Letters whose doubts a dry run names, at most.
const DOUBTS_MAX: usize = 100;

/// What a replay of a selection would do, as far as can be told before.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DryRun {
    /// Dead letters in the selection.
    pub letters: u64,
    /// The first 1,000 keys, in the order in which they would be replayed.
    pub keys: Vec<KeyShare>,
    /// Distinct keys, of each origin.
    pub keys_total: u64,
    /// Letters without a key.
    pub without_key: u64,
    /// Messages that wait behind the letters and would follow.
    pub successors: u64,
    /// Letters by origin and message type.
    pub types: Vec<TypeShare>,
    /// Letters that failed first before the inbox's retention began: a copy of such a message that
    /// arrives again would pass as new (N4).
    pub older_than_retention: u64,
    /// Letters that are no valid message and would be left out.
    pub invalid: u64,
    /// Letters whose key waits for a letter that is not in the selection or is no valid message: a
    /// run would leave them out. As it is now; what dies again in the run is not foreseen.
    pub blocked: u64,
    /// The first 100 letters that are invalid, do not decode or are older than the retention.
    pub doubts: Vec<Doubt>,
}

/// What a dry run says of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyShare {
    /// At which end.
    pub origin: Origin,
    /// The ordering key.
    pub key: String,
    /// Its letters in the selection.
    pub letters: u64,
    /// Messages that wait behind them.
    pub successors: u64,
    /// Whether the key waits for one of them.
    pub parked: bool,
}

/// What a dry run says of one message type at one end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypeShare {
    /// At which end.
    pub origin: Origin,
    /// The message type, if they have one.
    pub message_type: Option<String>,
    /// Its letters in the selection.
    pub letters: u64,
    /// Whether somebody handles it.
    pub handler: HandlerPresence,
    /// Letters whose payload decodes.
    pub decoding: u64,
    /// Letters whose payload does not.
    pub undecodable: u64,
    /// Letters whose payload nobody here can judge.
    pub unknown: u64,
}

/// What stands against replaying a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Doubt {
    /// Which letter.
    pub letter: LetterId,
    /// What stands against it.
    pub problem: String,
}

impl<D: Database> Operator<D> {
    /// What a replay of a selection would do; changes nothing. Reads every letter of it, page by
    /// page, so what dies meanwhile may or may not be counted.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn dry_run(&self, filter: &LetterFilter) -> Result<DryRun, OperatorError> {
        filter.check()?;
        let filter = LetterFilter {
            states: vec![LetterState::Dead],
            ..filter.clone()
        };
        let (now, announced) = self
            .read(async |connection| {
                let now = self.store.now(connection).await?;
                Ok((now, self.store.handled_types(connection).await?))
            })
            .await?;
        let mut tally = Tally {
            handlers: KnownHandlers::new(self.wiring.as_ref(), announced),
            forgotten_before: before(now, self.inbox_retention),
            hashes: RandomState::new(),
            distinct: HashSet::new(),
            named: HashMap::new(),
            types: BTreeMap::new(),
            waiting_for: HashMap::new(),
            places: HashSet::new(),
            found: DryRun::default(),
        };
        let mut after = None;
        loop {
            let (page, waiting) = self
                .read(async |connection| {
                    let page = self.store.letters(connection, &filter, after, PAGE).await?;
                    let ids: Vec<LetterId> = page.iter().map(|letter| letter.id).collect();
                    let waiting = self.store.waiting_for(connection, &ids).await?;
                    Ok((page, waiting))
                })
                .await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            page.iter().for_each(|letter| tally.add(letter));
            for (_, head) in waiting {
                *tally.waiting_for.entry(head).or_default() += 1;
            }
        }
        Ok(tally.end())
    }
}

/// So long before a time; the beginning of the calendar, if that was later.
fn before(now: OffsetDateTime, long: Duration) -> OffsetDateTime {
    time::Duration::try_from(long)
        .ok()
        .and_then(|long| now.checked_sub(long))
        .unwrap_or(PrimitiveDateTime::MIN.assume_utc())
}

struct Tally<'w, D: Database> {
    handlers: KnownHandlers<'w, D>,
    forgotten_before: OffsetDateTime,
    /// Keys are counted by their hashes: a selection may have millions.
    hashes: RandomState,
    distinct: HashSet<u64>,
    named: HashMap<(Origin, String), usize>,
    types: BTreeMap<(Origin, Option<String>), TypeShare>,
    /// How many letters wait for which.
    waiting_for: HashMap<LetterId, u64>,
    /// Letters of the selection that keep their key's place, and can be moved.
    places: HashSet<LetterId>,
    found: DryRun,
}

impl<D: Database> Tally<'_, D> {
    fn add(&mut self, letter: &DeadLetter) {
        self.found.letters += 1;
        self.found.successors += letter.successors;
        self.add_key(letter);
        let decodes = self.handlers.decodes(&letter.origin, &letter.message);
        let message_type = letter.message.message_type.clone();
        let place = (letter.origin.clone(), message_type.clone());
        let share = self.types.entry(place).or_insert_with(|| TypeShare {
            handler: self
                .handlers
                .presence(&letter.origin, message_type.as_deref()),
            origin: letter.origin.clone(),
            message_type,
            letters: 0,
            decoding: 0,
            undecodable: 0,
            unknown: 0,
        });
        share.letters += 1;
        match &decodes {
            Decodes::Yes => share.decoding += 1,
            Decodes::No(_) => share.undecodable += 1,
            Decodes::Unknown => share.unknown += 1,
        }
        if let Err(reason) = parse_again(&letter.message) {
            self.found.invalid += 1;
            self.doubt(letter, format!("would be left out: {reason}"));
        } else {
            if letter.parked {
                self.places.insert(letter.id);
            }
            if let Decodes::No(why) = decodes {
                self.doubt(letter, format!("does not decode: {why}"));
            }
        }
        if letter.first_failed_at.unwrap_or(letter.dead_at) < self.forgotten_before {
            self.found.older_than_retention += 1;
            self.doubt(letter, "older than the inbox's retention".to_owned());
        }
    }

    fn add_key(&mut self, letter: &DeadLetter) {
        let Some(key) = &letter.message.key else {
            self.found.without_key += 1;
            return;
        };
        let place = (letter.origin.clone(), key.clone());
        if self.distinct.insert(self.hashes.hash_one(&place)) {
            self.found.keys_total += 1;
            if self.found.keys.len() < KEYS_MAX {
                self.named.insert(place.clone(), self.found.keys.len());
                self.found.keys.push(KeyShare {
                    origin: letter.origin.clone(),
                    key: key.clone(),
                    letters: 0,
                    successors: 0,
                    parked: false,
                });
            }
        }
        if let Some(&index) = self.named.get(&place) {
            let share = &mut self.found.keys[index];
            share.letters += 1;
            share.successors += letter.successors;
            share.parked |= letter.parked;
        }
    }

    fn doubt(&mut self, letter: &DeadLetter, problem: String) {
        if self.found.doubts.len() < DOUBTS_MAX {
            self.found.doubts.push(Doubt {
                letter: letter.id,
                problem,
            });
        }
    }

    fn end(mut self) -> DryRun {
        self.waiting_for
            .retain(|head, _| !self.places.contains(head));
        DryRun {
            blocked: self.waiting_for.values().sum(),
            types: self.types.into_values().collect(),
            ..self.found
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retention_longer_than_the_calendar_forgets_nothing() {
        let now = OffsetDateTime::UNIX_EPOCH;
        let day = Duration::from_secs(86_400);
        assert_eq!(before(now, day), now - day);
        for long in [day * u32::MAX, Duration::MAX] {
            assert!(before(now, long) < now - day * 365 * 9_999);
        }
    }
}
