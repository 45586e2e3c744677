//! One test, or several, for each numbered guarantee, on all four combinations of database and
//! broker. The page `runtime/docs/guarantees.md` names them.

mod atomic;
mod bytes;
mod isolation;
mod leases;
mod not_promised;
mod nothing_lost;
mod once;
mod order;
mod sharing;
