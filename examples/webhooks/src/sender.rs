use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::{Delivery, Secrets, WebhookReceived};

/// How many repositories' deliveries are sent at the same time.
const SENDERS: usize = 8;
/// Between two tries of a delivery that was not taken.
const PAUSE: Duration = Duration::from_millis(100);

/// Sends deliveries as GitHub does, only more patiently: what is not taken is sent again until it
/// is.
///
/// Deliveries of one repository go one after the other, in the order given; those of different
/// repositories at the same time.
#[derive(Clone, Debug)]
pub struct Sender {
    address: SocketAddr,
    secrets: Secrets,
    patience: Duration,
    agent: ureq::Agent,
}

/// What the service answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Deliveries that were new to it.
    pub accepted: u64,
    /// Deliveries that it had before.
    pub done: u64,
    /// Tries that failed and were made again.
    pub failed: u64,
}

impl Sender {
    /// A sender to a service. One delivery is tried for `patience` at most.
    #[must_use]
    pub fn to(address: SocketAddr, secrets: Secrets, patience: Duration) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            .max_idle_connections_per_host(SENDERS);
        Self {
            address,
            secrets,
            patience,
            agent: config.build().into(),
        }
    }

    /// Sends all; blocks the thread until the last is taken. `progress` is called after each, from
    /// several threads.
    ///
    /// # Errors
    /// When the service refuses a delivery, or does not take one in time; others may have been
    /// taken.
    pub fn send_all(
        &self,
        deliveries: &[Delivery],
        progress: impl Fn() + Sync,
    ) -> anyhow::Result<Answers> {
        let queues = Mutex::new(by_repository(deliveries)?);
        let total = Mutex::new(Answers::default());
        let send_queues = || -> anyhow::Result<()> {
            while let Some(queue) = lock(&queues).pop() {
                for delivery in queue {
                    let answers = self.send(delivery)?;
                    lock(&total).add(answers);
                    progress();
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..SENDERS).map(|_| scope.spawn(send_queues)).collect();
            let ends = threads
                .into_iter()
                .map(|thread| thread.join().expect("a sender does not panic"));
            ends.collect::<anyhow::Result<()>>()
        })?;
        let total = *lock(&total);
        Ok(total)
    }

    /// Sends one until it is taken.
    ///
    /// # Errors
    /// As [`Sender::send_all`].
    pub fn send(&self, delivery: &Delivery) -> anyhow::Result<Answers> {
        let end = Instant::now() + self.patience;
        let signature = self.secrets.sign(&delivery.body);
        let mut answers = Answers::default();
        loop {
            let problem = match self.post(delivery, Some(&signature)) {
                Ok(202) => {
                    answers.accepted = 1;
                    return Ok(answers);
                }
                Ok(200) => {
                    answers.done = 1;
                    return Ok(answers);
                }
                Ok(status @ 400..500) => bail!("delivery {} was refused: {status}", delivery.id),
                Ok(status) => format!("status {status}"),
                Err(error) => error.to_string(),
            };
            if Instant::now() >= end {
                bail!(
                    "delivery {} was not taken within {:?}: {problem}",
                    delivery.id,
                    self.patience
                );
            }
            answers.failed += 1;
            std::thread::sleep(PAUSE);
        }
    }

    /// Posts a delivery once, with this signature or none, and gives back the status.
    ///
    /// # Errors
    /// When there is no answer; the delivery may have been taken all the same.
    pub fn post(&self, delivery: &Delivery, signature: Option<&str>) -> Result<u16, ureq::Error> {
        let mut request = self
            .agent
            .post(format!("http://{}/webhooks", self.address))
            .header("Content-Type", "application/json")
            .header("X-GitHub-Event", &delivery.event)
            .header("X-GitHub-Delivery", delivery.id.to_string());
        if let Some(signature) = signature {
            request = request.header("X-Hub-Signature-256", signature);
        }
        let mut response = request.send(&delivery.body[..])?;
        let status = response.status().as_u16();
        // Read to its end, so that the connection can be used again.
        response.body_mut().read_to_vec()?;
        Ok(status)
    }
}

impl Answers {
    fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.done += other.done;
        self.failed += other.failed;
    }
}

/// One queue per repository, and one for each delivery without.
fn by_repository(deliveries: &[Delivery]) -> anyhow::Result<Vec<Vec<&Delivery>>> {
    let mut queues: BTreeMap<String, Vec<&Delivery>> = BTreeMap::new();
    for delivery in deliveries {
        let message = WebhookReceived::of(delivery.body.clone())
            .with_context(|| format!("delivery {} has no body of GitHub's", delivery.id))?;
        let queue = message
            .repository
            .unwrap_or_else(|| delivery.id.to_string());
        queues.entry(queue).or_default().push(delivery);
    }
    Ok(queues.into_values().collect())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("a sender does not panic")
}
