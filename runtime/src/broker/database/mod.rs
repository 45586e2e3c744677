//! The database as a broker: queue tables in the application's own database, no server.
