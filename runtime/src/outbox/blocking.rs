//! Enqueueing on diesel's blocking `PgConnection`.
