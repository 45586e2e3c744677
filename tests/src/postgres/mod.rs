//! What only PostgreSQL has.

mod smoke;
