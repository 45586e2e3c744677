use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::{Fence, Grant, MemberId, Resource};
use crate::supervision::{Wake, WakeListener};

/// What this process owns of one resource, as the keeper last knew it, and what of it is in use by
/// actors.
///
/// The keeper writes grants; dispatchers and partition actors take [`LeaseUse`]s. It is the only
/// thing that they share.
#[derive(Clone)]
pub(crate) struct Board {
    member: MemberId,
    owned: Arc<Mutex<Owned>>,
    /// Calls the users when grants changed.
    changed: Wake,
    /// Calls the keeper when a use ended.
    returned: Wake,
    /// When the keeper wrote on it last.
    ticked: Arc<Mutex<Option<Instant>>>,
}

/// What is owned of which resource: of a consumer's partitions it is another one in another layout.
struct Owned {
    resource: Resource,
    entries: BTreeMap<u8, Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    /// What the database granted last; none once it was given back or lost while still in use.
    granted: Option<Granted>,
    /// Who uses it, in this epoch or in an earlier one.
    user: Option<User>,
    /// The epoch in which it was taken over from an owner that let it run out, until somebody says
    /// that what that one had in hand is looked after.
    taken_over: Option<i64>,
    /// The epoch that was written off, until the database has let it run out.
    written_off: Option<i64>,
}

impl Entry {
    const EMPTY: Self = Self {
        granted: None,
        user: None,
        taken_over: None,
        written_off: None,
    };

    fn is_empty(&self) -> bool {
        self.granted.is_none() && self.user.is_none() && self.written_off.is_none()
    }
}

/// One use of a lease, and the thread that it was begun on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct User {
    number: u64,
    thread: ThreadId,
}

impl User {
    fn here() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            thread: thread::current().id(),
        }
    }
}

#[derive(Clone, Copy)]
struct Granted {
    grant: Grant,
    valid_until: Instant,
    /// Whether the keeper means to keep it: if not, its users drain.
    keep: bool,
}

impl Board {
    pub(crate) fn new(resource: Resource, member: MemberId) -> Self {
        let entries = BTreeMap::new();
        Self {
            member,
            owned: Arc::new(Mutex::new(Owned { resource, entries })),
            changed: Wake::new(),
            returned: Wake::new(),
            ticked: Arc::default(),
        }
    }

    pub(crate) fn resource(&self) -> Resource {
        self.lock().resource.clone()
    }

    /// Turns to another resource: whatever was granted of the former one is lost. Who still uses
    /// that keeps the same number of the new one from being used until it has ended.
    pub(crate) fn turn_to(&self, resource: &Resource) {
        let mut owned = self.lock();
        if owned.resource == *resource {
            return;
        }
        owned.resource = resource.clone();
        for entry in owned.entries.values_mut() {
            *entry = Entry {
                user: entry.user,
                ..Entry::EMPTY
            };
        }
        owned.forget_unused();
        drop(owned);
        self.changed.call();
    }

    /// When its keeper knew last what this process owns; `None` before its first tick.
    pub(crate) fn ticked(&self) -> Option<Instant> {
        *self.ticked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A listener that is called when grants come or go.
    pub(crate) fn changes(&self) -> WakeListener {
        self.changed.listen()
    }

    /// A listener that is called when a use ends.
    pub(crate) fn returns(&self) -> WakeListener {
        self.returned.listen()
    }

    /// Begins to use a lease that is owned, valid and to be kept, and that nobody in this process
    /// uses.
    pub(crate) fn use_lease(&self, number: u8) -> Option<LeaseUse> {
        let mut owned = self.lock();
        let resource = owned.resource.clone();
        let entry = owned.entries.get_mut(&number)?;
        let granted = entry.granted.filter(|granted| granted.is_usable())?;
        if entry.user.is_some() {
            return None;
        }
        let user = User::here();
        entry.user = Some(user);
        Some(LeaseUse {
            board: self.clone(),
            resource,
            grant: granted.grant,
            user,
        })
    }

    /// The fence of a lease that is owned, valid and to be kept, whoever uses it: for short work
    /// that its user does not see.
    pub(crate) fn fence(&self, number: u8) -> Option<Fence> {
        let owned = self.lock();
        let granted = owned.entries.get(&number)?.granted;
        let granted = granted.filter(Granted::is_usable)?;
        Some(Fence {
            resource: owned.resource.clone(),
            owner: self.member,
            grant: granted.grant,
        })
    }

    /// The fence of whichever lease is owned, valid and to be kept, if there is one.
    pub(crate) fn any_fence(&self) -> Option<Fence> {
        self.usable()
            .into_iter()
            .find_map(|number| self.fence(number))
    }

    /// The numbers that are owned, valid and to be kept.
    pub(crate) fn usable(&self) -> Vec<u8> {
        let owned = self.lock();
        let usable = owned
            .entries
            .iter()
            .filter(|(_, entry)| entry.granted.is_some_and(|granted| granted.is_usable()));
        usable.map(|(number, _)| *number).collect()
    }

    /// Forgets grants that the database no longer knows as this process's.
    pub(crate) fn lose_all_but(&self, owned: &[Grant]) {
        let mut board = self.lock();
        let before = grants(&board.entries);
        for entry in board.entries.values_mut() {
            entry.granted = entry
                .granted
                .filter(|granted| owned.contains(&granted.grant));
        }
        let changed = before != grants(&board.entries);
        drop(board);
        if changed {
            self.changed.call();
        }
    }

    /// Says of leases that are about to be granted that their owner did not give them back.
    pub(crate) fn note_takeovers(&self, grants: &[Grant]) {
        let mut owned = self.lock();
        for grant in grants {
            let entry = owned.entries.entry(grant.number).or_insert(Entry::EMPTY);
            entry.taken_over = Some(grant.epoch);
        }
    }

    /// Replaces what is owned by what the database said, valid until `valid_until`.
    pub(crate) fn set(&self, owned: &[Grant], valid_until: Instant) {
        self.lose_all_but(owned);
        *self.ticked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let mut board = self.lock();
        let mut changed = false;
        for grant in owned {
            let entry = board.entries.entry(grant.number).or_insert(Entry::EMPTY);
            let keep = entry.granted.is_none_or(|granted| granted.keep);
            // News for whoever waits: a new grant, and one whose window had closed before it was
            // renewed.
            changed |= !entry
                .granted
                .is_some_and(|granted| granted.grant == *grant && granted.is_usable());
            entry.granted = Some(Granted {
                grant: *grant,
                valid_until,
                keep,
            });
        }
        board.forget_unused();
        drop(board);
        if changed {
            self.changed.call();
        }
    }

    /// Marks what is above a share of `share` leases as not to be kept (those in use last), and the
    /// rest as to be kept; returns the grants that can be given back at once, since nobody uses
    /// them.
    pub(crate) fn shrink_to(&self, share: usize) -> Vec<Grant> {
        let mut board = self.lock();
        let mut owned: Vec<(bool, bool, u8)> = board
            .entries
            .iter()
            .filter_map(|(number, entry)| {
                entry
                    .granted
                    .map(|granted| (granted.keep, entry.user.is_some(), *number))
            })
            .collect();
        // First what is on its way out already, then what nobody uses, then the highest numbers.
        owned.sort_by_key(|(keep, used, number)| (*keep, *used, std::cmp::Reverse(*number)));
        let surplus = owned.len().saturating_sub(share);
        let mut changed = false;
        let mut free = Vec::new();
        for (index, (_, used, number)) in owned.into_iter().enumerate() {
            let Some(entry) = board.entries.get_mut(&number) else {
                continue;
            };
            let Some(granted) = entry.granted.as_mut() else {
                continue;
            };
            let keep = index >= surplus;
            changed |= granted.keep != keep;
            granted.keep = keep;
            if !keep && !used {
                free.push(granted.grant);
            }
        }
        drop(board);
        if changed {
            self.changed.call();
        }
        free
    }

    /// Whether a lease is still owned and not to be kept: its user drains.
    pub(crate) fn has_unkept(&self) -> bool {
        self.lock()
            .entries
            .values()
            .any(|entry| entry.granted.is_some_and(|granted| !granted.keep))
    }

    /// Whether nothing of the resource is in use.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock()
            .entries
            .values()
            .all(|entry| entry.user.is_none())
    }

    /// Writes off what is used on threads that are blocked: their users cannot end, and are not to
    /// be waited for. Returns all grants that were written off and not yet [given
    /// up](Board::given_up) in the database, which comes before anybody uses them again: in another
    /// epoch, so even this process may.
    pub(crate) fn write_off(&self, is_blocked: impl Fn(ThreadId) -> bool) -> Vec<Grant> {
        let mut owned = self.lock();
        let mut written_off = Vec::new();
        for (number, entry) in &mut owned.entries {
            if entry.user.take_if(|user| is_blocked(user.thread)).is_some() {
                let granted = entry.granted.take();
                entry.written_off = granted.map(|granted| granted.grant.epoch);
            }
            let grant = |epoch| Grant {
                number: *number,
                epoch,
            };
            written_off.extend(entry.written_off.map(grant));
        }
        written_off
    }

    /// Says of grants that were written off that the database has let them run out.
    pub(crate) fn given_up(&self, grants: &[Grant]) {
        let mut owned = self.lock();
        for grant in grants {
            if let Some(entry) = owned.entries.get_mut(&grant.number) {
                entry.written_off.take_if(|epoch| *epoch == grant.epoch);
            }
        }
    }

    fn end_use(&self, number: u8, user: User) {
        let mut owned = self.lock();
        if let Some(entry) = owned.entries.get_mut(&number) {
            // One that was written off is no longer there, or is another's.
            entry.user.take_if(|current| *current == user);
        }
        owned.forget_unused();
        drop(owned);
        self.returned.call();
        // Somebody may have waited for the old use to end.
        self.changed.call();
    }

    fn lock(&self) -> MutexGuard<'_, Owned> {
        // Nothing panics while holding it; if it did, the map would still be whole.
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owned {
    fn forget_unused(&mut self) {
        self.entries.retain(|_, entry| !entry.is_empty());
    }

    /// What a use was given, if it is its still.
    fn granted_to(&mut self, user: &LeaseUse) -> Option<&mut Entry> {
        if self.resource != user.resource {
            return None;
        }
        let entry = self.entries.get_mut(&user.grant.number)?;
        (entry.granted?.grant == user.grant).then_some(entry)
    }
}

fn grants(entries: &BTreeMap<u8, Entry>) -> Vec<Grant> {
    entries
        .values()
        .filter_map(|entry| entry.granted.map(|granted| granted.grant))
        .collect()
}

impl Granted {
    fn is_usable(&self) -> bool {
        self.keep && Instant::now() < self.valid_until
    }
}

/// The right of one actor to work on one lane or partition, until it is dropped.
pub(crate) struct LeaseUse {
    board: Board,
    resource: Resource,
    grant: Grant,
    user: User,
}

impl LeaseUse {
    /// Whether new work may be begun: still owned in the same epoch, inside the trust window, and
    /// to be kept.
    pub(crate) fn may_go_on(&self) -> bool {
        let mut owned = self.board.lock();
        let granted = owned.granted_to(self).and_then(|entry| entry.granted);
        granted.is_some_and(|granted| granted.is_usable())
    }

    /// What it is a lease of: of a consumer's partitions, in which layout.
    pub(crate) fn resource(&self) -> &Resource {
        &self.resource
    }

    /// How long it may be used from now, unless it is renewed or lost before.
    pub(crate) fn remaining(&self) -> Duration {
        let mut owned = self.board.lock();
        let granted = owned.granted_to(self).and_then(|entry| entry.granted);
        granted.map_or(Duration::ZERO, |granted| {
            granted
                .valid_until
                .saturating_duration_since(Instant::now())
        })
    }

    /// Whether it was taken over from an owner that let it run out: that one may have died of what
    /// it had in hand.
    pub(crate) fn is_taken_over(&self) -> bool {
        let owned = self.board.lock();
        let entry = owned.entries.get(&self.grant.number);
        let here = owned.resource == self.resource;
        here && entry.is_some_and(|entry| entry.taken_over == Some(self.grant.epoch))
    }

    /// Says that what the former owner had in hand is looked after.
    pub(crate) fn trust(&self) {
        let mut owned = self.board.lock();
        if owned.resource == self.resource
            && let Some(entry) = owned.entries.get_mut(&self.grant.number)
        {
            entry.taken_over = None;
        }
    }

    /// Says that the database refused this lease's fence: it is lost, whatever the clock says,
    /// until the keeper has asked again.
    pub(crate) fn lost(&self) {
        if let Some(entry) = self.board.lock().granted_to(self) {
            entry.granted = None;
        }
    }

    /// What settles of work under this lease carry.
    pub(crate) fn fence(&self) -> Fence {
        Fence {
            resource: self.resource.clone(),
            owner: self.board.member,
            grant: self.grant,
        }
    }
}

impl Drop for LeaseUse {
    fn drop(&mut self) {
        self.board.end_use(self.grant.number, self.user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Generation;

    fn board() -> Board {
        Board::new(Resource::Lanes, MemberId::random())
    }

    fn grant(number: u8, epoch: i64) -> Grant {
        Grant { number, epoch }
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn a_lease_is_used_by_one_actor_at_a_time() {
        let board = board();
        board.set(&[grant(3, 1)], later());
        let first = board.use_lease(3).unwrap();
        assert!(board.use_lease(3).is_none());
        drop(first);
        assert!(board.use_lease(3).is_some());
    }

    #[test]
    fn a_use_ends_with_its_epoch_and_blocks_the_next_until_it_is_dropped() {
        let board = board();
        board.set(&[grant(3, 1)], later());
        let old = board.use_lease(3).unwrap();
        board.set(&[grant(3, 2)], later());
        assert!(!old.may_go_on());
        assert!(board.use_lease(3).is_none());
        drop(old);
        assert_eq!(board.use_lease(3).unwrap().fence().grant, grant(3, 2));
    }

    #[test]
    fn a_use_ends_with_its_layout_and_blocks_its_number_in_the_next_until_it_is_dropped() {
        let [first, second] = [1, 2].map(|number| {
            let partitions = 4;
            Resource::partitions("c", Generation { number, partitions })
        });
        let board = Board::new(first.clone(), MemberId::random());
        board.set(&[grant(3, 1)], later());
        let old = board.use_lease(3).unwrap();
        board.turn_to(&first);
        assert!(old.may_go_on());
        board.turn_to(&second);
        assert!(!old.may_go_on() && old.remaining() == Duration::ZERO && board.fence(3).is_none());
        // The same number and the same epoch, and another lease.
        board.set(&[grant(3, 1)], later());
        assert!(!old.may_go_on() && board.use_lease(3).is_none());
        old.lost();
        assert_eq!(board.fence(3).unwrap().resource, second);
        assert_eq!(old.fence().resource, first);
        drop(old);
        assert_eq!(*board.use_lease(3).unwrap().resource(), second);
    }

    #[test]
    fn a_use_ends_with_the_trust_window() {
        let board = board();
        board.set(&[grant(0, 1)], later());
        let lease = board.use_lease(0).unwrap();
        assert!(lease.may_go_on() && lease.remaining() > Duration::ZERO);
        board.set(&[grant(0, 1)], Instant::now());
        assert!(!lease.may_go_on() && lease.remaining() == Duration::ZERO);
    }

    #[test]
    fn a_renewal_after_the_window_has_closed_wakes_those_who_wait() {
        let board = board();
        board.set(&[grant(0, 1)], Instant::now());
        assert!(board.use_lease(0).is_none());
        let mut changes = board.changes();
        changes.hear();
        board.set(&[grant(0, 1)], later());
        futures_util::FutureExt::now_or_never(changes.called()).expect("a call");
        assert!(board.use_lease(0).is_some());
    }

    #[test]
    fn what_is_above_the_share_drains_before_it_is_given_back() {
        let board = board();
        board.set(&[grant(0, 1), grant(1, 1), grant(2, 1)], later());
        let (zero, two) = (board.use_lease(0).unwrap(), board.use_lease(2).unwrap());
        assert_eq!(board.shrink_to(2), [grant(1, 1)]);
        assert!(zero.may_go_on() && two.may_go_on());
        board.set(&[grant(0, 1), grant(2, 1)], later());
        assert_eq!(board.shrink_to(1), []);
        assert!(zero.may_go_on() && !two.may_go_on());
        drop(two);
        assert_eq!(board.shrink_to(1), [grant(2, 1)]);
    }

    #[test]
    fn what_a_blocked_thread_uses_is_written_off_and_its_end_ends_no_other_use() {
        let board = board();
        board.set(&[grant(0, 1), grant(1, 1)], later());
        let here = board.use_lease(0).unwrap();
        let of_board = board.clone();
        let blocked = thread::spawn(move || (thread::current().id(), of_board.use_lease(1)));
        let (blocked_thread, blocked) = blocked.join().unwrap();
        let blocked = blocked.unwrap();
        let is_blocked = |thread| thread == blocked_thread;
        assert_eq!(board.write_off(is_blocked), [grant(1, 1)]);
        assert_eq!(
            board.write_off(is_blocked),
            [grant(1, 1)],
            "not yet given up"
        );
        board.given_up(&[grant(1, 1)]);
        assert!(board.write_off(is_blocked).is_empty());
        assert!(here.may_go_on() && !blocked.may_go_on());
        assert!(board.use_lease(1).is_none(), "it is not granted");
        board.set(&[grant(0, 1), grant(1, 2)], later());
        let again = board.use_lease(1).unwrap();
        drop(blocked);
        assert!(again.may_go_on() && board.use_lease(1).is_none());
    }

    #[test]
    fn a_lease_that_was_deserted_is_suspicious_until_it_is_trusted_or_anothers_epoch() {
        let board = board();
        board.note_takeovers(&[grant(0, 3)]);
        assert!(board.use_lease(0).is_none(), "nothing is granted yet");
        board.set(&[grant(0, 3), grant(1, 1)], later());
        let (zero, one) = (board.use_lease(0).unwrap(), board.use_lease(1).unwrap());
        assert!(zero.is_taken_over() && !one.is_taken_over());
        drop(zero);
        let again = board.use_lease(0).unwrap();
        assert!(again.is_taken_over());
        again.trust();
        assert!(!again.is_taken_over());
        drop(again);
        board.note_takeovers(&[grant(0, 5)]);
        board.set(&[grant(0, 6), grant(1, 1)], later());
        assert!(!board.use_lease(0).unwrap().is_taken_over());
        assert_eq!(board.fence(0).unwrap().grant, grant(0, 6));
        assert!(board.fence(2).is_none());
    }
}
