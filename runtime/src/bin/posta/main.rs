//! `posta`: what an operator does, at a command line.
//!
//! Every command is a call or two of [`posta::operations::operator`]; here is only what a terminal
//! needs: flags, tables of at most 100 columns, `--json`, a dry run before every change, and exit
//! codes that a script can go by ([`exit`]).

#[cfg(not(any(feature = "postgres", feature = "sqlite")))]
compile_error!("`posta` needs a database: choose the feature `sqlite` or `postgres` beside `cli`");

mod command;
mod confirm;
mod database;
mod exit;
mod filter;
mod flags;
mod interrupt;
mod moment;
mod print;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use crate::exit::Failed;
use crate::flags::Flags;
use crate::interrupt::interruptible;
use crate::print::text::printable;

fn main() -> ExitCode {
    let flags = Flags::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(interruptible(database::run(&flags)));
            if matches!(outcome, Err(Failed::Interrupted(_))) {
                // Nobody answers the question that a thread may still wait for.
                runtime.shutdown_background();
            }
            outcome
        }
        Err(error) => Err(Failed::Io("start", error)),
    };
    match outcome.and_then(|text| say(text.as_bytes())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            tell(&format!("posta: {}\n", printable(&failed.chain())));
            ExitCode::from(failed.exit_code())
        }
    }
}

/// Writes to standard output. A reader that has seen enough is no failure.
fn say(bytes: &[u8]) -> Result<(), Failed> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failed::Io("write the answer", error))
        }
        _ => Ok(()),
    }
}

/// Writes to standard error, where nobody may read: what is done does not depend on it.
fn tell(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr
        .write_all(text.as_bytes())
        .and_then(|()| stderr.flush());
}
