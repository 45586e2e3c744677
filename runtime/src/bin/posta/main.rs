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
mod moment;
mod print;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use crate::exit::Failed;
use crate::flags::Flags;

fn main() -> ExitCode {
    let flags = Flags::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(database::run(&flags)),
        Err(error) => Err(Failed::Io("start", error)),
    };
    match outcome.and_then(|text| say(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("posta: {}", failed.chain());
            ExitCode::from(failed.exit_code())
        }
    }
}

/// Writes to standard output. A reader that has seen enough is no failure.
fn say(text: &str) -> Result<(), Failed> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failed::Io("write the answer", error))
        }
        _ => Ok(()),
    }
}
