use super::*;

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[tokio::test]
async fn a_panic_before_and_after_an_await_is_caught_with_its_place_and_frames() {
    install();
    let early = Guarded::new(async { panic!("early {}", 1) }).await;
    let early: Caught = early.map(|(): ()| ()).expect_err("a panic");
    assert_eq!(early.text, "early 1");
    assert!(early.place.unwrap().contains("panic/tests.rs:"));
    tokio::time::sleep(BACKTRACE_INTERVAL * 2).await;
    let late = Guarded::new(async {
        tokio::task::yield_now().await;
        panic!("late");
    });
    let late: Caught = late.await.map(|(): ()| ()).expect_err("a panic");
    assert!(late.to_string().starts_with("late (at "), "{late}");
    // Another test of this process may have had the one that this interval allows.
    if let Some(frames) = late.backtrace {
        assert!(frames.contains("panic::tests") && frames.len() <= ERROR_BYTES_MAX);
    }
    assert_eq!(guard(|| 3), Ok(3));
}

#[tokio::test]
async fn a_panic_of_what_is_dropped_stays_inside() {
    let guarded = Guarded::new(async {
        let _held = PanicsWhenDropped;
        std::future::pending::<()>().await;
    });
    let mut guarded = Box::pin(guarded);
    assert!(futures_util::poll!(&mut guarded).is_pending());
    drop(guarded);
}

#[test]
fn a_stream_of_panics_has_few_backtraces_and_each_its_place() {
    install();
    let caught: Vec<Caught> = (0..50)
        .filter_map(|number| guard(|| assert!(number < 0, "number {number}")).err())
        .collect();
    assert_eq!(caught.len(), 50);
    assert!(caught.iter().all(|panic| panic.place.is_some()));
    let frames = caught.iter().filter(|panic| panic.backtrace.is_some());
    assert!(frames.count() < 25);
}
