//! Schedules: an event at regular times.

use std::time::Duration;

use bytes::Bytes;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at},
};

use super::function::{Invoke, Outcome};

/// One schedule of a function.
#[derive(Clone, Debug)]
pub struct Schedule<I> {
    /// Its name.
    pub name: String,
    /// Time between two runs.
    pub every: Duration,
    /// The event it sends.
    pub input: Bytes,
    /// How many runs may be under way at a time; a run that is due beyond it is left out.
    pub width: usize,
    /// The function.
    pub function: I,
}

impl<I: Invoke> Schedule<I> {
    /// Runs at each time until the host stops; the first is one period after the start. A run that is still going does not
    /// stop the next, as on AWS.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut times = interval_at(Instant::now() + self.every, self.every);
        times.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut runs = JoinSet::new();
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                Some(_) = runs.join_next() => {}
                _ = times.tick() => {
                    if runs.len() < self.width {
                        runs.spawn(self.clone().once());
                    }
                }
            }
        }
        while runs.join_next().await.is_some() {}
    }

    async fn once(self) {
        if let Outcome::Failed(failure) = self.function.invoke(self.input).await {
            tracing::warn!(schedule = self.name, "{failure}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::sync::{Semaphore, mpsc};

    use super::*;

    /// Tells when a run begins, with how many are under way, and ends it when it may.
    #[derive(Clone)]
    struct Slow {
        under_way: Arc<AtomicUsize>,
        begun: mpsc::UnboundedSender<(Bytes, usize)>,
        may_end: Arc<Semaphore>,
    }

    impl Invoke for Slow {
        async fn invoke(&self, event: Bytes) -> Outcome {
            let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            self.begun.send((event, under_way)).unwrap();
            self.may_end.acquire().await.unwrap().forget();
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            Outcome::Answer(Bytes::new())
        }
    }

    #[tokio::test]
    async fn a_slow_run_does_not_stop_the_next_but_runs_do_not_pile_up() {
        let (begun, mut beginnings) = mpsc::unbounded_channel();
        let (under_way, may_end) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let function = Slow { under_way, begun, may_end: Arc::clone(&may_end) };
        let every = Duration::from_millis(1);
        let (stop, stopping) = watch::channel(false);
        let schedule =
            Schedule { name: "sweep".into(), every, input: "{}".into(), width: 2, function };
        let mut running = JoinSet::new();
        running.spawn(schedule.run(stopping));
        assert_eq!(beginnings.recv().await.unwrap(), (Bytes::from("{}"), 1));
        assert_eq!(beginnings.recv().await.unwrap().1, 2);
        for _ in 0..20 {
            may_end.add_permits(1);
            assert_eq!(beginnings.recv().await.unwrap().1, 2);
        }
        stop.send(true).unwrap();
        may_end.add_permits(2);
        running.join_next().await.unwrap().unwrap();
        assert!(beginnings.recv().await.is_none());
    }
}
