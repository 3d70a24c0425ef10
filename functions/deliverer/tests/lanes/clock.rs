//! A time that passes only when everybody waits, of one thread.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use jiff::Timestamp;

thread_local! {
    static NOW: Cell<i64> = const { Cell::new(0) };
    static TIMERS: RefCell<BTreeMap<(i64, u64), Waker>> = const { RefCell::new(BTreeMap::new()) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// When each test begins: the beginning of a day.
pub(crate) const START: i64 = 1_000_080_000_000_000;
const _: () = assert!(START % 86_400_000_000 == 0);

/// This many seconds after the beginning.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_microsecond(START + second * 1_000_000).unwrap()
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_microsecond(NOW.get()).unwrap()
}

/// Milliseconds since the beginning.
pub(crate) fn ms() -> i64 {
    (NOW.get() - START) / 1000
}

pub(crate) fn sleep(wait: Duration) -> Sleep {
    // Upwards, or whoever waits for the rest of a microsecond waits for ever.
    let wait = i64::try_from(wait.as_nanos().div_ceil(1_000)).unwrap();
    COUNT.set(COUNT.get() + 1);
    Sleep { key: (NOW.get() + wait, COUNT.get()) }
}

#[derive(Debug)]
pub(crate) struct Sleep {
    key: (i64, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if NOW.get() >= self.key.0 {
            return Poll::Ready(());
        }
        TIMERS.with_borrow_mut(|timers| timers.insert(self.key, context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        TIMERS.with_borrow_mut(|timers| timers.remove(&self.key));
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs a future from the beginning of time to its end.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    NOW.set(START);
    TIMERS.with_borrow_mut(BTreeMap::clear);
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut future = pin!(future);
    loop {
        if flag.0.swap(false, Ordering::SeqCst) {
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return done;
            }
            continue;
        }
        let first = TIMERS.with_borrow_mut(BTreeMap::pop_first);
        let ((then, _), waker) = first.expect("nobody waits for a time, and nothing happens");
        NOW.set(NOW.get().max(then));
        waker.wake();
    }
}
