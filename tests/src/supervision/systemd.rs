//! What systemd hears on its socket.

use std::cell::RefCell;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use posta::Sqlite;

use super::child::{Orders, Service};
use crate::world::{BrokerKind, PATIENCE, World};

/// A socket such as systemd's, in a folder of its own.
struct Manager {
    socket: UnixDatagram,
    folder: PathBuf,
    heard: RefCell<Vec<String>>,
}

impl Manager {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("posta-systemd-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder).expect("a folder");
        let socket = UnixDatagram::bind(folder.join("notify")).expect("a socket");
        socket
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("a time limit");
        Self {
            socket,
            folder,
            heard: RefCell::default(),
        }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let path = self.folder.join("notify").display().to_string();
        // The watchdog wants to hear something each second.
        let watchdog = Duration::from_secs(1).as_micros().to_string();
        vec![("NOTIFY_SOCKET", path), ("WATCHDOG_USEC", watchdog)]
    }

    /// Reads until so many lines have begun like this; all lines so far.
    fn until(&self, line: &str, times: usize) -> Vec<String> {
        let (started, mut heard) = (Instant::now(), self.heard.borrow_mut());
        let mut buffer = [0; 4096];
        while heard.iter().filter(|it| it.starts_with(line)).count() < times {
            assert!(
                started.elapsed() < PATIENCE,
                "never {line:?}, but {heard:#?}"
            );
            let Ok(bytes) = self.socket.recv(&mut buffer) else {
                continue;
            };
            let text = String::from_utf8_lossy(&buffer[..bytes]);
            heard.extend(text.lines().map(str::to_owned));
        }
        heard.clone()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[actix_rt::test]
async fn systemd_hears_that_it_is_ready_alive_and_stopping() {
    let world = World::<Sqlite>::fresh(BrokerKind::Database).await;
    let manager = Manager::new();
    let service = Service::start(
        &world,
        Orders {
            env: manager.environment(),
            grace: Some(Duration::from_secs(600)),
            ..Orders::default()
        },
    );
    let heard = manager.until("READY=1", 1);
    assert!(!heard.contains(&"STOPPING=1".to_owned()));
    manager.until("WATCHDOG=1", 4);
    manager.until("STATUS=live, ready", 1);
    service.signal("TERM");
    let heard = manager.until("EXTEND_TIMEOUT_USEC=603000000", 1);
    assert!(heard.contains(&"STOPPING=1".to_owned()), "{heard:?}");
    let (code, said, _) = service.ended();
    assert_eq!((code, said.as_str()), (Some(0), "ended: well"));
}
