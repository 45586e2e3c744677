use std::io::{BufRead, Write};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use posta::Database;
use posta::operations::operator::{DryRun, HandlerPresence, Operator};
use posta::store::{DeadLetter, LetterFilter, LetterId};

use super::books::BOOKS;
use super::count::{count, settle};
use super::serve::RUNS;
use super::{Db, prepare, receive};
use crate::place::Place;
use crate::posting;
use crate::service::Service;
use crate::standing::{Account, Standing};

/// How long a step may take. A replay from outside is noticed by polling where the database cannot
/// tell the service.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why the letter is replayed: it stands in the record.
const REASON: &str = "the handler reads thousands separators now";

/// Tells the story, step by step, and checks after each that everything stands where it should.
///
/// It leaves the database as it is, with one dead letter for the reader.
pub(crate) async fn tell(place: &Place, pauses: bool) -> anyhow::Result<()> {
    let store = prepare(&place.database).await?;
    let before = count(&store).await?;
    ensure!(
        before.accounts.iter().all(|account| account.received == 0),
        "the story was told on this database already, and it is told once: name another one \
         (--database), and with RabbitMQ another virtual host"
    );
    let story = Story {
        operator: Operator::new(store.clone(), "dead_letters")?,
        store,
        pauses,
    };
    let service = story.fail(place).await?;
    let service = story.mend(place, service).await?;
    story.replay().await?;
    story.leave(place).await?;
    service.stop().await
}

struct Story {
    store: <Db as Database>::Store,
    operator: Operator<Db>,
    pauses: bool,
}

/// What is expected of an account: booked, dead, and behind.
type Expected = (i64, i64, i64);

impl Story {
    async fn fail(&self, place: &Place) -> anyhow::Result<Service> {
        let service = Service::start(place, true, RUNS).await?;
        say(
            "1. The service runs, with a bug. Thirty postings come in, for three accounts; the fourth",
        );
        say(
            "   of bert's is \"1,250.00\", which this version cannot read. It is tried three times.",
        );
        receive::receive(&self.store, &posting::first()).await?;
        self.expect([(10, 0, 0), (3, 1, 6), (10, 0, 0)]).await?;
        say(
            "   It is a dead letter now, and bert's key is parked: his later postings wait behind it,",
        );
        say("   since a balance that leaves one out is wrong. The others never noticed.");
        let letter = self.letter().await?;
        show(&letter);
        self.pause()?;
        Ok(service)
    }

    async fn mend(&self, place: &Place, service: Service) -> anyhow::Result<Service> {
        service.stop().await?;
        let service = Service::start(place, false, RUNS).await?;
        say(
            "2. The fix is deployed: the service is stopped, and started with a handler that reads such",
        );
        say("   amounts. One more posting for each account comes in.");
        receive::receive(&self.store, &posting::more()).await?;
        self.expect([(11, 0, 0), (3, 1, 7), (11, 0, 0)]).await?;
        say("   A fix alone brings nothing back. bert's new posting keeps its place in the line.");
        self.pause()?;
        Ok(service)
    }

    async fn replay(&self) -> anyhow::Result<()> {
        let letter = self.letter().await?;
        let filter = LetterFilter {
            ids: vec![letter.id],
            ..LetterFilter::default()
        };
        let dry_run = self.operator.dry_run(&filter).await?;
        say("3. An operator asks what a replay would do,");
        tell_dry_run(&dry_run)?;
        say("   and does it.");
        self.operator.replay(letter.id, REASON).await?;
        self.expect([(11, 0, 0), (11, 0, 0), (11, 0, 0)]).await?;
        let replayed = self.operator.show(letter.id, 0).await?.letter;
        ensure!(replayed.replays == 1, "the letter was replayed once");
        say(
            "   The dead letter first, then what waited, in order: each account's last posting is its",
        );
        say("   eleventh, and the balances are what they would be without the bug.");
        let balances = self.balances().await?;
        ensure!(
            balances == [8_000, 8_000 - 450 + 125_000, 8_000],
            "the balances are wrong: {balances:?}"
        );
        self.pause()
    }

    async fn leave(&self, place: &Place) -> anyhow::Result<()> {
        say(
            "4. One is left for you. cleo's twelfth posting says \"twelve\": no amount in any version,",
        );
        say("   and the handler says so (a permanent failure), so it is not tried again.");
        receive::receive(&self.store, &posting::without_amount()).await?;
        let standing = self.expect([(11, 0, 0), (11, 0, 0), (11, 1, 2)]).await?;
        ensure!(standing.is_sound(), "something was doubled or misordered");
        let letter = self.letter().await?;
        ensure!(letter.reason == "permanent", "it is dead at once");
        ensure!(letter.attempts == 1, "and was tried once");
        show(&letter);
        tell_commands(place, letter.id);
        Ok(())
    }

    /// Waits until so much of each account is booked, dead and behind, and nothing is on its way;
    /// prints what stands where.
    async fn expect(&self, expected: [Expected; 3]) -> anyhow::Result<Standing> {
        let is_right = |standing: &Standing| {
            let quiet = |account: &Account| account.on_its_way() == 0 && account.retrying == 0;
            standing.summary() == expected && standing.accounts.iter().all(quiet)
        };
        let standing = settle(&self.store, PATIENCE, is_right).await?;
        say(&format!("\n{standing}\n"));
        if !is_right(&standing) {
            let names = "anna, bert and cleo should have booked, dead and waiting behind it";
            bail!("{names}: {expected:?}");
        }
        ensure!(standing.is_sound(), "something was doubled or misordered");
        Ok(standing)
    }

    /// The one dead letter that there is.
    async fn letter(&self) -> anyhow::Result<DeadLetter> {
        let letters = self
            .operator
            .letters(&LetterFilter::default(), None, 2)
            .await?;
        let [letter] = <[DeadLetter; 1]>::try_from(letters)
            .map_err(|letters| anyhow::anyhow!("{} dead letters instead of one", letters.len()))?;
        ensure!(letter.parked, "its key waits for it");
        Ok(letter)
    }

    async fn balances(&self) -> anyhow::Result<[i64; 3]> {
        let standing = count(&self.store).await?;
        let balances = standing
            .accounts
            .iter()
            .map(|account| account.balance_cents);
        let balances: Vec<i64> = balances.collect();
        balances.try_into().ok().context("three accounts")
    }

    /// Waits for the reader, if there is one.
    fn pause(&self) -> anyhow::Result<()> {
        if self.pauses {
            eprint!("   Enter goes on ");
            std::io::stderr().flush()?;
            std::io::stdin().lock().read_line(&mut String::new())?;
        }
        say("");
        Ok(())
    }
}

fn say(text: &str) {
    println!("{text}");
}

fn show(letter: &DeadLetter) {
    let payload = String::from_utf8_lossy(&letter.message.payload);
    say(&format!("\n   letter    {}", letter.id));
    say(&format!(
        "   reason    {}, tries: {}",
        letter.reason, letter.attempts
    ));
    say(&format!("   error     {}", letter.error));
    say(&format!("   payload   {payload}\n"));
}

fn tell_dry_run(dry_run: &DryRun) -> anyhow::Result<()> {
    let letters = (dry_run.letters, dry_run.successors);
    ensure!(letters == (1, 7), "{letters:?} letters and successors");
    let share = dry_run.types.first().context("of one type")?;
    ensure!(share.decoding == 1, "its payload decodes");
    ensure!(
        matches!(share.handler, HandlerPresence::Announced { .. }),
        "the service said that it handles the type"
    );
    say(&format!(
        "\n   {} letter, {} messages behind it; {BOOKS} handles the type, and the payload decodes\n",
        dry_run.letters, dry_run.successors
    ));
    Ok(())
}

/// What the reader can do with what is left.
fn tell_commands(place: &Place, letter: LetterId) {
    let database = place.in_words();
    let posta = "cargo run -q -p posta --features cli,postgres --bin posta --";
    let payload = r#"{"account":"cleo","number":12,"amount":"12.00"}"#;
    say("   Repair it by hand. With");
    say(&format!("\n     export POSTA_DATABASE={database}"));
    say(&format!("     alias posta='{posta}'\n"));
    say("   look at it, give it a payload that has an amount, and replay it:\n");
    for command in [
        "list".to_owned(),
        format!("show {letter}"),
        format!(
            "edit {letter} --reason 'the sender says 12.00' --yes \\\n         \
             --payload-file - <<< '{payload}'"
        ),
        format!("replay {letter} --reason 'has an amount now' --yes"),
    ] {
        say(&format!("     posta dead-letters {command}"));
    }
    say("     posta record\n");
    say(
        "   or let cleo's key go on without it (skip, discard; restore undoes that). The service has to",
    );
    say("   run for that, and `look` tells what stands where:\n");
    say("     cargo run -p dead_letters -- serve");
    say("     cargo run -p dead_letters -- look");
}
