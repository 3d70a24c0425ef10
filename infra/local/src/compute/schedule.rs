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
    use std::sync::{Arc, Mutex};

    use tokio::{sync::Notify, time::sleep};

    use super::*;

    #[derive(Clone, Default)]
    struct Slow {
        begun: Arc<Mutex<Vec<Bytes>>>,
        finish: Arc<Notify>,
    }

    impl Invoke for Slow {
        async fn invoke(&self, event: Bytes) -> Outcome {
            self.begun.lock().unwrap().push(event);
            self.finish.notified().await;
            Outcome::Answer(Bytes::new())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_run_does_not_stop_the_next_but_runs_do_not_pile_up() {
        let function = Slow::default();
        let every = Duration::from_secs(60);
        let schedule =
            Schedule { name: "sweep".into(), every, input: "{}".into(), width: 2, function: function.clone() };
        let (stop, stopping) = watch::channel(false);
        let running = tokio::task::spawn(schedule.run(stopping));
        let begun = || function.begun.lock().unwrap().len();
        sleep(every - Duration::from_secs(1)).await;
        assert_eq!(begun(), 0);
        sleep(every + Duration::from_secs(2)).await;
        assert_eq!(begun(), 2);
        sleep(every * 5).await;
        assert_eq!(begun(), 2);
        function.finish.notify_one();
        sleep(every).await;
        assert_eq!(begun(), 3);
        stop.send(true).unwrap();
        function.finish.notify_one();
        sleep(Duration::from_millis(1)).await;
        assert!(!running.is_finished());
        function.finish.notify_one();
        running.await.unwrap();
    }
}
