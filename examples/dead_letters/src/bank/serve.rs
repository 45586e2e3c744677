use std::time::Duration;

use anyhow::Context;
use posta::{Broker, Posta};

use super::books::Books;
use super::{Db, prepare};
use crate::place::Place;

/// The service looks this often at least for what is due again. A replay from outside is noticed so:
/// within a second here, within five by default.
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(200);

/// What a service says once it runs.
pub(crate) const RUNS: &str = "dead_letters: the service runs";

/// Runs the service until SIGTERM or SIGINT, or until `end` comes.
pub(crate) async fn serve(
    place: &Place,
    with_bug: bool,
    end: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let broker = Broker::from_url(&place.broker).context("the broker cannot be used")?;
    prepare(&place.database).await?;
    let posta = Posta::<Db>::builder(&place.database, broker)
        .poll_interval_max(POLL_INTERVAL_MAX)
        .consumer(Books { with_bug })
        .start()
        .await
        .context("posta did not start")?;
    posta.declared().await;
    println!("{RUNS}{}", if with_bug { ", with the bug" } else { "" });
    tokio::select! {
        stopped = posta.run_until_signal() => stopped?,
        () = end => posta.stop().await?,
    }
    println!("dead_letters: the service has ended");
    Ok(())
}
