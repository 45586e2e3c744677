//! What is SQLite's alone.

mod smoke;
