//! What can happen beside crashes at points, drawn from the round's random numbers.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::network::Server;
use crate::harness::proxy::Traffic;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    /// A process is killed, whatever it is at.
    Kill,
    /// A process is frozen for so long, and goes on.
    Freeze(Duration),
    /// One seat's network to one server does this for so long.
    Network(Server, Traffic, Duration),
    /// All connections of one seat are closed.
    Reset(Server),
    /// The server is killed, and started again after so long.
    PostgresKilled(Duration),
    RabbitMqKilled(Duration),
    /// The server is stopped in order and started.
    RabbitMqRestarted,
    /// Its memory alarm blocks publishers for so long.
    Alarm(Duration),
    /// Nothing can be written for so long.
    DiskFull(Duration),
    /// A copy of a message lands in a dead queue.
    DeadCopy,
}

/// What can happen on a ground.
#[derive(Clone, Copy, Debug)]
pub(super) struct Possible {
    pub(super) postgres: bool,
    pub(super) rabbitmq: bool,
    pub(super) disk: bool,
    /// The servers themselves may be disturbed.
    pub(super) servers: bool,
}

/// Draws the particulars of a kind of fault.
type Draw = fn(&mut StdRng) -> Fault;

impl Fault {
    /// Draws what happens next.
    pub(super) fn draw(possible: Possible, rng: &mut StdRng) -> Self {
        let mut choices: Vec<(u32, Draw)> = vec![
            (6, |_| Self::Kill),
            (20, |rng| Self::Freeze(seconds(rng, 0.3, 6.0))),
        ];
        if possible.postgres {
            choices.push((30, |rng| network(Server::Postgres, rng)));
            choices.push((12, |_| Self::Reset(Server::Postgres)));
        }
        if possible.rabbitmq {
            choices.push((30, |rng| network(Server::RabbitMq, rng)));
            choices.push((12, |_| Self::Reset(Server::RabbitMq)));
            choices.push((8, |_| Self::DeadCopy));
        }
        if possible.disk {
            choices.push((14, |rng| Self::DiskFull(seconds(rng, 0.2, 3.0))));
        }
        if possible.servers && possible.postgres {
            choices.push((6, |rng| Self::PostgresKilled(seconds(rng, 0.0, 3.0))));
        }
        if possible.servers && possible.rabbitmq {
            choices.push((2, |rng| Self::RabbitMqKilled(seconds(rng, 0.0, 2.0))));
            choices.push((1, |_| Self::RabbitMqRestarted));
            choices.push((6, |rng| Self::Alarm(seconds(rng, 0.5, 4.0))));
        }
        let all = choices.iter().map(|(weight, _)| weight).sum();
        let mut number = rng.random_range(0..all);
        for (weight, draw) in choices {
            if number < weight {
                return draw(rng);
            }
            number -= weight;
        }
        unreachable!("the weights were summed up")
    }

    /// Its kind, as the report counts it.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Kill => "killed at a random time",
            Self::Freeze(_) => "frozen (SIGSTOP)",
            Self::Network(_, Traffic::Delay(_), _) => "network delays",
            Self::Network(_, Traffic::Stall, _) => "network drops",
            Self::Network(_, Traffic::HoldAnswers, _) => "network: answers held",
            Self::Network(_, Traffic::HoldQuestions, _) => "network: questions held",
            Self::Network(..) => "network held",
            Self::Reset(_) => "connections reset",
            Self::PostgresKilled(_) => "PostgreSQL killed",
            Self::RabbitMqKilled(_) => "RabbitMQ killed",
            Self::RabbitMqRestarted => "RabbitMQ restarted",
            Self::Alarm(_) => "RabbitMQ alarmed",
            Self::DiskFull(_) => "disk full",
            Self::DeadCopy => "copy in a dead queue",
        }
    }
}

fn network(server: Server, rng: &mut StdRng) -> Fault {
    let lasts = seconds(rng, 0.3, 4.0);
    let traffic = match rng.random_range(0..6) {
        0..2 => Traffic::Delay(Duration::from_millis(rng.random_range(5..200))),
        2 => Traffic::Stall,
        3 => Traffic::HoldAnswers,
        4 => Traffic::HoldQuestions,
        _ => Traffic::Hold,
    };
    Fault::Network(server, traffic, lasts)
}

fn seconds(rng: &mut StdRng, from: f64, to: f64) -> Duration {
    Duration::from_secs_f64(rng.random_range(from..to))
}
