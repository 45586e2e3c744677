//! The RabbitMQ driver by itself, without actors, against a real broker.

mod alarm;
mod arguments;
mod connecting;
mod dead_queue;
mod foreign;
mod half_open;
mod hand_over;
mod lost;
mod messages;
mod oversized;
mod prefetch;
mod runtimes;
mod unbinding;
mod unpublished;
