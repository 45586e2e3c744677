//! What is SQLite's alone: one file, one writer, several processes.

mod arbiter;
mod cancel;
mod child;
mod open;
mod plain_sql;
mod processes;
mod turn;
mod upgrade;
mod watch;
