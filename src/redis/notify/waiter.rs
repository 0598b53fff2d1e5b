//! A claim that waits, and what it was notified of.

use super::notice::Notice;
use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Default)]
pub(super) struct Waiter {
    notice: Mutex<Option<Notice>>,
    notified: Notify,
}

impl Waiter {
    pub(super) fn notify(&self, notice: Notice) {
        let mut last = self.notice.lock();
        *last = Some(notice.after(*last));
        drop(last);
        self.notified.notify_one();
    }

    /// Waits for a notification to poll, or of a grant under a token higher than `last`. A process
    /// that was stopped may receive a notification only after its grant has ended.
    pub(super) async fn granted_after(&self, last: u64) -> Notice {
        loop {
            self.notified.notified().await;
            let notice = self.notice.lock().take();
            if let Some(notice) = notice.filter(|notice| notice.token == 0 || notice.token > last) {
                return notice;
            }
        }
    }
}
