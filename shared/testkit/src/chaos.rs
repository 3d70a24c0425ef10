//! Faults, decided call by call.

use std::{
    fmt,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use domain::ports::StoreError;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The store says that it is throttled.
    Throttled,
    /// No answer comes.
    Unavailable,
    /// The store will never take it.
    Refused,
    /// The process dies: the call never returns, and [`Chaos::crashed`] says so.
    Crash,
}

/// When it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Nothing happens.
    Before,
    /// The effect happens, and its answer is lost.
    After,
}

type Decide = Box<dyn FnMut(u64, &'static str) -> Option<(When, Fault)> + Send>;

/// Decides about each call of a store. Calls are counted from 0.
#[derive(Default)]
pub struct Chaos {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    decide: Option<Decide>,
    calls: Vec<&'static str>,
    crashed: bool,
}

impl fmt::Debug for Chaos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chaos").field("calls", &self.lock().calls.len()).finish()
    }
}

impl Chaos {
    /// Lets `decide` say about each call, by its number and its name such as `inbox.accept`, what goes wrong.
    pub fn set(
        &self,
        decide: impl FnMut(u64, &'static str) -> Option<(When, Fault)> + Send + 'static,
    ) {
        let mut inner = self.lock();
        *inner = Inner { decide: Some(Box::new(decide)), ..Inner::default() };
    }

    /// One fault at one call, counted from now.
    pub fn at(&self, call: u64, when: When, fault: Fault) {
        self.set(move |n, _| (n == call).then_some((when, fault)));
    }

    /// A fault at each call of this name.
    pub fn on(&self, name: &'static str, when: When, fault: Fault) {
        self.set(move |_, called| (called == name).then_some((when, fault)));
    }

    /// No more faults.
    pub fn heal(&self) {
        *self.lock() = Inner::default();
    }

    /// The calls so far, by name, since the last change of mind.
    pub fn calls(&self) -> Vec<&'static str> {
        self.lock().calls.clone()
    }

    /// Whether the process has died in a call. Reading it brings the next process to life.
    pub fn crashed(&self) -> bool {
        std::mem::take(&mut self.lock().crashed)
    }

    /// Runs a process until it ends or dies in a call; `None`: it died, and what it had not done stays undone.
    pub async fn until_crash<T>(&self, process: impl Future<Output = T>) -> Option<T> {
        let mut process = pin!(process);
        std::future::poll_fn(|context| match process.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if self.crashed() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Runs one call: yields once, so that another process may come first, then does `effect` under the verdict.
    pub(crate) async fn call<T>(
        &self,
        name: &'static str,
        effect: impl FnOnce() -> T,
    ) -> Result<T, StoreError> {
        yield_once().await;
        let verdict = self.verdict(name);
        if let Some((When::Before, fault)) = verdict {
            return Err(self.suffer(fault).await);
        }
        let done = effect();
        if let Some((When::After, fault)) = verdict {
            return Err(self.suffer(fault).await);
        }
        Ok(done)
    }

    fn verdict(&self, name: &'static str) -> Option<(When, Fault)> {
        let mut inner = self.lock();
        let number = inner.calls.len() as u64;
        inner.calls.push(name);
        inner.decide.as_mut().and_then(|decide| decide(number, name))
    }

    async fn suffer(&self, fault: Fault) -> StoreError {
        match fault {
            Fault::Throttled => StoreError::Throttled("injected".into()),
            Fault::Unavailable => StoreError::Unavailable("injected".into()),
            Fault::Refused => StoreError::Refused("injected".into()),
            Fault::Crash => {
                self.lock().crashed = true;
                std::future::pending().await
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets everybody else run once.
pub(crate) async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
