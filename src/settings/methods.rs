//! The `with_*` methods that both layers have.

/// Defines the modifiers of a layer with a field `settings: Arc<Settings>`. `$new` is an example
/// of the layer; `$wait` is what happens without a wait.
macro_rules! settings_methods {
    ($new:literal, $wait:literal) => {
        /// The policy: `concurrency` unless set. Layers of one policy share the permits of a key,
        /// layers of two policies do not. Clients read its name in the RateLimit fields.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*;
        #[doc = concat!("let layer = ", $new, ".with_policy(\"market\");")]
        /// ```
        pub fn with_policy(mut self, policy: impl Into<$crate::semaphore::Policy>) -> Self {
            self.settings_mut().set_policy(policy.into());
            self
        }

        /// How long a request may wait in the queue, first come, first served for each key across
        /// all processes of the store.
        ///
        #[doc = $wait]
        ///
        /// # Panics
        ///
        /// A request that waits needs a Tokio runtime with time enabled.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*; use std::time::Duration;
        #[doc = concat!("let layer = ", $new, ".with_wait(Duration::from_secs(2));")]
        /// ```
        pub fn with_wait(mut self, wait: std::time::Duration) -> Self {
            self.settings_mut().wait = wait;
            self
        }

        /// How many requests of one key may wait:
        /// [`DEFAULT_MAX_WAITING`](crate::semaphore::DEFAULT_MAX_WAITING) unless set. Further ones
        /// are refused at once.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*; use std::time::Duration;
        #[doc = concat!("let layer = ", $new)]
        ///     .with_wait(Duration::from_secs(2))
        ///     .with_max_waiting(50);
        /// ```
        pub fn with_max_waiting(mut self, max_waiting: usize) -> Self {
            self.settings_mut().max_waiting = max_waiting;
            self
        }

        /// Ends a permit after this time, whatever its request does then: no bound unless set. A
        /// client that has stopped reading is an example, because its body is never polled again.
        /// What becomes of the response is set by [`with_on_lost`](Self::with_on_lost).
        ///
        /// # Panics
        ///
        /// Each admitted request needs a Tokio runtime with time enabled.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*; use std::time::Duration;
        #[doc = concat!("let layer = ", $new, ".with_max_hold(Duration::from_secs(600));")]
        /// ```
        pub fn with_max_hold(mut self, max_hold: std::time::Duration) -> Self {
            self.settings_mut().max_hold = Some(max_hold);
            self
        }

        /// What becomes of a response whose permit was lost: it finishes unless set.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*;
        #[doc = concat!("let layer = ", $new, ".with_on_lost(OnLost::Abort);")]
        /// ```
        pub fn with_on_lost(mut self, on_lost: $crate::settings::OnLost) -> Self {
            self.settings_mut().on_lost = on_lost;
            self
        }

        /// When a permit is released: at the end of the body unless set.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*;
        #[doc = concat!("let layer = ", $new, ".with_release(ReleaseAt::Head);")]
        /// ```
        pub fn with_release(mut self, release_at: $crate::settings::ReleaseAt) -> Self {
            self.settings_mut().release_at = release_at;
            self
        }

        /// Makes the response to a request that is not admitted:
        /// [`Rejection::into_response`](crate::Rejection::into_response) unless set. The
        /// [`Rejection`](crate::Rejection) shows the request too.
        ///
        /// The response may have any body of bytes: a `String`, `http_body_util::Full`, axum's
        /// `Body`. So what axum's `IntoResponse` makes fits as it is.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*;
        /// use axum::{http::StatusCode, response::IntoResponse};
        ///
        #[doc = concat!("let layer = ", $new)]
        ///     .with_rejection(|rejection| match rejection.parts().uri.path() {
        ///         "/export" => (StatusCode::IM_A_TEAPOT, "one export at a time").into_response(),
        ///         _ => rejection.into_response().into_response(),
        ///     });
        /// ```
        pub fn with_rejection<F, B>(mut self, reject: F) -> Self
        where
            F: Fn($crate::reject::Rejection) -> http::Response<B> + Send + Sync + 'static,
            B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
            B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        {
            self.settings_mut().reject = $crate::reject::reject(reject);
            self
        }
    };
}

pub(crate) use settings_methods;
