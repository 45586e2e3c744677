//! Who runs a message of the retry table, and who died of it.

use std::time::Duration;

use posta::store::{Claim, Fence, MemberId, Postponement, RetryStore};

pub(super) use super::given::fresh as start;
use super::given::{LONG, Place, failed, keyed, keyless, successor};
use super::letters::texts;
use crate::harness::database::TestDatabase;

const NOW: Duration = Duration::ZERO;

pub(super) async fn a_members_own_claim_is_not_abandoned<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    let positions = three(place).await;
    let member = MemberId::random();
    for _ in 0..3 {
        let claims = claim(place, &fence, &positions, member).await;
        assert_eq!(claims, fresh(&positions));
        let alone = claim_alone(place, &fence, positions[0], member).await;
        assert_eq!(alone, Some(fresh(&positions)[0]));
    }
    assert_eq!(
        place.due_rows().await.len(),
        3,
        "a claim changes nothing else"
    );
}

pub(super) async fn a_claim_that_another_member_left_behind_is_abandoned<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let positions = three(place).await;
    let (dead, alive) = (MemberId::random(), MemberId::random());
    claim(place, &fence, &positions[..2], dead).await;
    // However often it is looked at: whoever claims together does not count.
    for _ in 0..3 {
        let found: Vec<(bool, u32)> = claim(place, &fence, &positions, alive)
            .await
            .into_iter()
            .map(|claim| (claim.abandoned, claim.deaths))
            .collect();
        assert_eq!(found, [(true, 0), (true, 0), (false, 0)]);
    }
}

pub(super) async fn only_who_runs_a_message_alone_counts_a_death<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let positions = three(place).await;
    let first = MemberId::random();
    claim(place, &fence, &positions, first).await;
    // Each runs the first alone, and dies.
    for deaths in 1..4 {
        let member = MemberId::random();
        let alone = claim_alone(place, &fence, positions[0], member).await;
        let expected = Claim {
            position: positions[0],
            abandoned: true,
            deaths,
        };
        assert_eq!(alone, Some(expected));
        // The same member did not die.
        let again = claim_alone(place, &fence, positions[0], member).await;
        let own = Claim {
            abandoned: false,
            ..expected
        };
        assert_eq!(again, Some(own));
    }
    // Those that were claimed with it are as the first one left them.
    let found: Vec<(bool, u32)> = claim(place, &fence, &positions, MemberId::random())
        .await
        .into_iter()
        .map(|claim| (claim.abandoned, claim.deaths))
        .collect();
    assert_eq!(found, [(true, 3), (true, 0), (true, 0)]);
}

pub(super) async fn a_claim_ends_when_the_message_is_postponed<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    let positions = three(place).await;
    let (first, second) = (MemberId::random(), MemberId::random());
    claim(place, &fence, &positions, first).await;
    claim_alone(place, &fence, positions[0], second).await;
    let postponed = place
        .done(async |store, session| {
            store
                .postpone(
                    session,
                    "c",
                    &fence,
                    positions[0],
                    Postponement {
                        error: Some("failed"),
                        delay: NOW,
                    },
                )
                .await
        })
        .await;
    assert!(postponed);
    let found = claim(place, &fence, &positions[..1], MemberId::random()).await;
    // Whoever postponed it outlived it: deaths count anew.
    assert_eq!((found[0].abandoned, found[0].deaths), (false, 0));
}

pub(super) async fn a_claim_ends_when_the_message_is_parked<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    let message = keyed("a", b"a1");
    place.hold("c", &[failed(&message, NOW)]).await;
    let position = place.position_of(&message).await;
    for _ in 0..3 {
        claim_alone(place, &fence, position, MemberId::random()).await;
    }
    let (_, letter) = place.park(&fence, &message).await;
    assert!(place.readmit_held(letter, &message).await);
    let found = claim(place, &fence, &[position], MemberId::random()).await;
    // A replay begins anew.
    assert_eq!(found, fresh(&[position]));
}

pub(super) async fn a_member_that_gives_up_alive_leaves_no_claim<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let positions = three(place).await;
    let (dead, alive) = (MemberId::random(), MemberId::random());
    claim(place, &fence, &positions[..1], dead).await;
    claim(place, &fence, &positions, alive).await;
    place
        .done(async |store, session| store.unclaim(session, "other", 0..=63, alive).await)
        .await;
    place
        .done(async |store, session| store.unclaim(session, "c", 0..=63, alive).await)
        .await;
    let found: Vec<bool> = claim(place, &fence, &positions, MemberId::random())
        .await
        .into_iter()
        .map(|claim| claim.abandoned)
        .collect();
    assert_eq!(found, [true, false, false], "the other's claim stays");
}

pub(super) async fn nothing_is_claimed_without_a_valid_fence<D: TestDatabase>(place: &Place<D>) {
    let good = place.own_partition("c").await;
    let positions = three(place).await;
    let member = MemberId::random();
    let mut fences = place.bad_fences(&good).await;
    place.expire(&good).await;
    fences.push(("whose time is over", good.clone()));
    let successor = place.own_expired(&good.resource, 0).await;
    fences.push(("that another member's replaced", good));
    for (what, fence) in fences {
        assert_eq!(
            claim(place, &fence, &positions, member).await,
            [],
            "a fence {what}"
        );
        let alone = claim_alone(place, &fence, positions[0], member).await;
        assert_eq!(alone, None, "a fence {what}");
    }
    let claims = claim(place, &successor, &positions, MemberId::random()).await;
    assert_eq!(
        claims,
        fresh(&positions),
        "none of them left a claim behind"
    );
}

pub(super) async fn what_is_there_is_claimed_once<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    let [a, b, c] = three(place).await;
    place.hold("other", &[failed(&keyless(b""), NOW)]).await;
    let others = place
        .done(async |store, session| store.due(session, "other", 0..=63, 10).await)
        .await[0]
        .position;
    let member = MemberId::random();
    let asked = [c, i64::MAX, a, others, c];
    assert_eq!(claim(place, &fence, &asked, member).await, fresh(&[a, c]));
    assert_eq!(claim(place, &fence, &[], member).await, []);
    for gone in [i64::MAX, others] {
        assert_eq!(claim_alone(place, &fence, gone, member).await, None);
    }
    assert_eq!(place.release(&fence, &[b]).await, [b]);
    assert_eq!(claim(place, &fence, &[b], member).await, []);
}

pub(super) async fn a_claim_that_is_rolled_back_never_was<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    let positions = three(place).await;
    let mut session = place.begin().await;
    place
        .store
        .claim(&mut session, "c", &fence, &positions, MemberId::random())
        .await
        .unwrap();
    session.rollback().await;
    let claims = claim(place, &fence, &positions, MemberId::random()).await;
    assert_eq!(claims, fresh(&positions));
}

/// A key's successors are claimed with their head, to be run together.
pub(super) async fn messages_that_are_not_due_are_claimed_too<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    let mut holds = vec![failed(&keyed("a", b"a1"), LONG)];
    holds.extend(["a2", "a3"].map(|text| successor(&keyed("a", text.as_bytes()))));
    place.hold("c", &holds).await;
    let rows = place.held_of("a").await;
    let positions: Vec<i64> = rows.iter().map(|row| row.position).collect();
    let member = MemberId::random();
    assert_eq!(
        claim(place, &fence, &positions, member).await,
        fresh(&positions)
    );
    assert_eq!(texts(&place.held_of("a").await), ["a1", "a2", "a3"]);
    assert_eq!(place.due_texts().await, [""; 0]);
}

/// Three messages that are due.
async fn three<D: TestDatabase>(place: &Place<D>) -> [i64; 3] {
    let holds = [b"1", b"2", b"3"].map(|payload| failed(&keyless(payload), NOW));
    place.hold("c", &holds).await;
    let due = place.due_rows().await;
    assert_eq!(texts(&due), ["1", "2", "3"]);
    [due[0].position, due[1].position, due[2].position]
}

fn fresh(positions: &[i64]) -> Vec<Claim> {
    let claim = |position: &i64| Claim {
        position: *position,
        abandoned: false,
        deaths: 0,
    };
    positions.iter().map(claim).collect()
}

async fn claim<D: TestDatabase>(
    place: &Place<D>,
    fence: &Fence,
    positions: &[i64],
    member: MemberId,
) -> Vec<Claim> {
    let mut claims = place
        .done(async |store, session| store.claim(session, "c", fence, positions, member).await)
        .await;
    claims.sort_by_key(|claim| claim.position);
    claims
}

async fn claim_alone<D: TestDatabase>(
    place: &Place<D>,
    fence: &Fence,
    position: i64,
    member: MemberId,
) -> Option<Claim> {
    place
        .done(async |store, session| {
            store
                .claim_alone(session, "c", fence, position, member)
                .await
        })
        .await
}
