//! The limits that every envelope keeps, and where each comes from.

/// Longest message type, in bytes: an AMQP 0-9-1 short string holds 255 bytes, and the routing key
/// is the type followed by a dot and a slot of at most two digits.
pub const MESSAGE_TYPE_BYTES_MAX: usize = 255 - ".63".len();

/// Longest ordering key, in bytes of UTF-8. It travels as an AMQP header and is an index column.
pub const ORDERING_KEY_BYTES_MAX: usize = 255;

/// Longest header name, in bytes: an AMQP 0-9-1 short string.
pub const HEADER_NAME_BYTES_MAX: usize = 255;

/// Most headers in one envelope.
pub const HEADERS_MAX: usize = 64;

/// Names and values of all headers of one envelope together, in bytes. An AMQP message's properties
/// must fit into one frame, 128 KiB with RabbitMQ's default `frame_max`; a quarter of that leaves
/// room for brokers that say less.
pub const HEADERS_BYTES_MAX: usize = 32 * 1024;

/// Longest content type, in bytes: an AMQP 0-9-1 short string.
pub const CONTENT_TYPE_BYTES_MAX: usize = 255;

/// Largest payload, in bytes, unless the configuration says otherwise.
pub const PAYLOAD_BYTES_DEFAULT: usize = 1024 * 1024;

/// Largest payload, in bytes, that the configuration may allow: what RabbitMQ takes by default (128
/// MiB, and 16 MiB from 4.0; the smaller one counts).
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Largest schema version: the outbox keeps it in a 32-bit signed column.
pub const VERSION_MAX: u32 = i32::MAX as u32;

const _: () = assert!(PAYLOAD_BYTES_DEFAULT <= PAYLOAD_BYTES_MAX);
const _: () = assert!(HEADER_NAME_BYTES_MAX < HEADERS_BYTES_MAX);
