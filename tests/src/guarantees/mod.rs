//! One test, or several, for each numbered guarantee, on all four combinations of database and broker.

mod once;
