//! The RabbitMQ driver by itself, without actors, against a real broker.

mod smoke;
