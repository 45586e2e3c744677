//! What is done to processes, servers and the network, and undone again.

use std::time::{Duration, Instant};

use rand::RngExt as _;

use super::driver::Driver;
use super::fault::{Fault, Possible};
use super::ground::{DatabaseKind, Disk};
use super::message::AUDIT;
use super::network::Server;
use crate::harness::{proxy::Traffic, rabbitmq::control};
use crate::world::BrokerKind;

/// What is to be done when a fault's time is over.
pub(super) enum Undo {
    Unfreeze(usize),
    Pass(usize, Server),
    /// After bytes were swallowed a connection is of no use.
    CutAndPass(usize, Server),
    FreeDisk,
}

impl Driver<'_> {
    pub(super) fn possible(&self) -> Possible {
        let disk = self.ground.disk.as_ref();
        Possible {
            postgres: self.plan.database == DatabaseKind::Postgres,
            rabbitmq: self.plan.broker == BrokerKind::RabbitMq,
            disk: disk.is_some_and(Disk::can_be_filled),
            servers: self.plan.servers,
        }
    }

    /// Has a fault happen, unless something of its kind is happening.
    pub(super) fn strike(&mut self, fault: Fault) {
        let number = self.rng.random_range(0..self.seats.len());
        let now = Instant::now();
        match fault {
            Fault::Kill => {
                if self.seats[number].is_stopped() {
                    return;
                }
                // One that has ended by itself in a way of its own is noted there.
                if let Err(how) = self.kill(number) {
                    self.outcome.verdict.broken.push(how);
                }
                return;
            }
            Fault::Freeze(lasts) => {
                if self.seats[number].is_stopped() {
                    return;
                }
                self.seats[number].freeze(true);
                self.undo.push((now + lasts, Undo::Unfreeze(number)));
            }
            Fault::Network(server, traffic, lasts) => {
                let busy = self.undo.iter().any(|(_, undo)| {
                    matches!(undo, Undo::Pass(at, of) | Undo::CutAndPass(at, of) if (*at, *of) == (number, server))
                });
                if busy {
                    return;
                }
                self.set(number, server, traffic);
                let undo = match traffic {
                    Traffic::Stall => Undo::CutAndPass(number, server),
                    _ => Undo::Pass(number, server),
                };
                self.undo.push((now + lasts, undo));
            }
            Fault::Reset(server) => self.undo(Undo::CutAndPass(number, server)),
            Fault::DiskFull(lasts) => {
                if self
                    .undo
                    .iter()
                    .any(|(_, undo)| matches!(undo, Undo::FreeDisk))
                {
                    return;
                }
                if let Some(disk) = &self.ground.disk {
                    disk.fill();
                }
                self.undo.push((now + lasts, Undo::FreeDisk));
            }
            Fault::DeadCopy => {
                if !self.copy_into_dead_queue().unwrap_or(false) {
                    return;
                }
            }
            Fault::PostgresKilled(lasts) => {
                if !self.disturb(move || {
                    control("postgres-kill", None);
                    std::thread::sleep(lasts);
                    control("postgres-start", None);
                }) {
                    return;
                }
            }
            Fault::RabbitMqKilled(lasts) => {
                if !self.disturb(move || {
                    control("rabbitmq-kill", None);
                    std::thread::sleep(lasts);
                    control("rabbitmq-start", None);
                }) {
                    return;
                }
            }
            Fault::RabbitMqRestarted => {
                if !self.disturb(|| drop(control("rabbitmq-restart", None))) {
                    return;
                }
            }
            Fault::Alarm(lasts) => {
                if !self.disturb(move || {
                    control("rabbitmq-block", None);
                    std::thread::sleep(lasts);
                    control("rabbitmq-unblock", None);
                }) {
                    return;
                }
            }
        }
        let name = self.seats[number].name;
        self.tell(&format!("{fault:?} (seat {name})"));
        self.count(fault.kind());
    }

    pub(super) fn disturb(&mut self, work: impl FnOnce() + Send + 'static) -> bool {
        if self.server.is_some() {
            return false;
        }
        self.server = Some(std::thread::spawn(work));
        true
    }

    pub(super) fn join_server(&mut self) -> Result<(), String> {
        let Some(server) = self.server.take() else {
            return Ok(());
        };
        self.tell("the server is as it was");
        server
            .join()
            .map_err(|_| "a control script has failed".to_owned())
    }

    pub(super) fn database_is_up(&self) -> bool {
        self.server.is_none() || self.plan.database == DatabaseKind::Sqlite
    }

    pub(super) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Unfreeze(number) => self.seats[number].freeze(false),
            Undo::Pass(number, server) => self.set(number, server, Traffic::Pass),
            Undo::CutAndPass(number, server) => {
                self.set(number, server, Traffic::Cut);
                // Long enough for every pump to see it.
                std::thread::sleep(Duration::from_millis(50));
                self.set(number, server, Traffic::Pass);
            }
            Undo::FreeDisk => {
                if let Some(disk) = &self.ground.disk {
                    disk.free();
                }
            }
        }
    }

    pub(super) fn set(&self, seat: usize, server: Server, traffic: Traffic) {
        for (at, before, proxy) in &self.network.proxies {
            if (*at, *before) == (seat, server) {
                proxy.set(traffic);
            }
        }
    }

    /// Has a copy of a scheduled note arrive at a dead queue, as one that the broker gave up on.
    pub(super) fn copy_into_dead_queue(&self) -> Result<bool, String> {
        let Some(vhost) = &self.ground.vhost else {
            return Ok(false);
        };
        if !self.database_is_up() {
            return Ok(false);
        }
        let hex = match self.plan.database {
            DatabaseKind::Sqlite => "lower(hex(message_id)) || '|' || lower(hex(payload))",
            DatabaseKind::Postgres => "CAST(message_id AS text) || '|' || encode(payload, 'hex')",
        };
        let note = format!("SELECT {hex} AS value FROM {{posta}}scheduled LIMIT 1");
        let lines = self.ground.tables.lines(&note)?;
        let Some((id, payload)) = lines.first().and_then(|line| line.split_once('|')) else {
            return Ok(false);
        };
        let id: uuid::Uuid = id.parse().map_err(|_| "no id".to_owned())?;
        let payload: Vec<u8> = (0..payload.len() / 2)
            .filter_map(|n| u8::from_str_radix(&payload[2 * n..2 * n + 2], 16).ok())
            .collect();
        let properties = serde_json::json!({
            "message_id": id.to_string(),
            "type": "faults.note",
            "content_type": "application/json",
            "delivery_mode": 2,
            "headers": {"posta-version": 1},
        });
        let dead = format!("{AUDIT}.dead");
        let published = vhost.publish_into(&dead, &properties, &payload);
        published.map(|()| true).map_err(|error| error.to_string())
    }

    pub(super) fn heal_all_but_processes(&mut self) -> Result<(), String> {
        for (_, undo) in std::mem::take(&mut self.undo) {
            self.undo(undo);
        }
        self.join_server()
    }
}
