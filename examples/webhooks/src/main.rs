//! A webhook service for GitHub on SQLite, PostgreSQL and RabbitMQ.
//!
//! ```text
//! WEBHOOKS_SECRET=… cargo run -p webhooks                              SQLite in webhooks.db, nothing else needed
//! WEBHOOKS_SECRET=… cargo run -p webhooks -- --database postgres://… --broker amqp://…
//! WEBHOOKS_SECRET=… cargo run -p webhooks -- send FILE                 plays GitHub, from a JSON Lines file
//! WEBHOOKS_SECRET=… cargo run -p webhooks -- verify FILE               compares the tables with the file
//! curl http://127.0.0.1:8080/repositories                             what the statistics say
//! ```
//!
//! `WEBHOOKS_SECRET` is what the webhook's page at GitHub has as its secret;
//! `WEBHOOKS_SECRET_BEFORE` the one before, while it is being changed. `RUST_LOG=debug` says more.
//! README.md goes through all of it.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use webhooks::{Delivery, Options, Running, Secrets, Sender, verify};

/// Takes GitHub's webhook deliveries and hands each to two consumers, once and in order.
#[derive(Parser)]
#[command(name = "webhooks", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    serve: Serve,
    #[command(subcommand)]
    instead: Option<Instead>,
}

#[derive(Args)]
struct Serve {
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: String,
    #[command(flatten)]
    place: Place,
    /// `database`, or amqp://… for RabbitMQ
    #[arg(long, default_value = "database")]
    broker: String,
    /// Seconds that the work of a killed process rests
    #[arg(long, default_value_t = 15)]
    lease: u64,
}

#[derive(Args)]
struct Place {
    /// sqlite://FILE or postgres://…
    #[arg(long, default_value = "sqlite://webhooks.db")]
    database: String,
    /// An event that the statistics leave out, such as ping; can be given more than once
    #[arg(long, value_name = "EVENT")]
    ignore: Vec<String>,
}

#[derive(Subcommand)]
enum Instead {
    /// Send the deliveries of a JSON Lines file, each until it is taken
    Send {
        file: PathBuf,
        /// The service's address
        #[arg(long, default_value = "127.0.0.1:8080")]
        to: std::net::SocketAddr,
    },
    /// Compare the tables with a JSON Lines file that was sent; fails if they are not right
    Verify {
        file: PathBuf,
        #[command(flatten)]
        place: Place,
        /// Seconds to wait until they are
        #[arg(long, default_value_t = 10)]
        patience: u64,
    },
}

#[actix_web::main]
async fn main() -> anyhow::Result<ExitCode> {
    log();
    let arguments = Arguments::parse();
    let mut options = Options::new(secrets()?);
    match arguments.instead {
        None => {
            let Serve {
                listen,
                place,
                broker,
                lease,
            } = arguments.serve;
            options = Options {
                listen,
                broker,
                lease: Duration::from_secs(lease),
                ..options
            };
            serve(place.of(options)).await
        }
        Some(Instead::Send { file, to }) => {
            let deliveries = read(&file)?;
            let sender = Sender::to(to, options.secrets, Duration::from_secs(60));
            let answers = sender.send_all(&deliveries, || ())?;
            println!(
                "accepted {}, here before {}, sent again {}",
                answers.accepted, answers.done, answers.failed
            );
            Ok(ExitCode::SUCCESS)
        }
        Some(Instead::Verify {
            file,
            place,
            patience,
        }) => {
            let deliveries = read(&file)?;
            let report = verify(
                &place.of(options),
                &deliveries,
                Duration::from_secs(patience),
            )
            .await?;
            println!("{report}");
            Ok(if report.is_right() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
    }
}

async fn serve(options: Options) -> anyhow::Result<ExitCode> {
    let running = Running::start(&options).await?;
    println!("webhooks: http://{}/webhooks", running.address());
    running.until_ended().await?;
    println!("webhooks: ended");
    Ok(ExitCode::SUCCESS)
}

impl Place {
    fn of(self, options: Options) -> Options {
        Options {
            database: self.database,
            ignored: self.ignore.into_iter().collect(),
            ..options
        }
    }
}

/// Logs to standard error what `RUST_LOG` says; by default without Posta's spans, which are for
/// OpenTelemetry and make a long line of each.
fn log() {
    let filter = EnvFilter::try_from_default_env();
    let filter =
        filter.unwrap_or_else(|_| EnvFilter::new("info,posta::telemetry=off,actix_server=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
}

/// From the environment, since an argument can be read by everybody on the machine.
fn secrets() -> anyhow::Result<Secrets> {
    let present = std::env::var("WEBHOOKS_SECRET").context("WEBHOOKS_SECRET is not set")?;
    let before = std::env::var("WEBHOOKS_SECRET_BEFORE").ok();
    Ok(Secrets::new([present].into_iter().chain(before))?)
}

fn read(file: &PathBuf) -> anyhow::Result<Vec<Delivery>> {
    let open = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    Delivery::read_lines(BufReader::new(open))
}
