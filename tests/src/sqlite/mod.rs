//! What is SQLite's alone.
