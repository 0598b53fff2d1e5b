//! The `with_*` methods that the layers have.

/// Defines the modifiers of a layer for HTTP with a field `settings: Arc<Settings>`. `$new` is an example of the layer;
/// `$wait` is the doc of what happens without a wait.
macro_rules! settings_methods {
    ($new:literal, $wait:literal) => {
        $crate::settings::claim_methods!($new, $wait);

        /// Sets how long a client may stall while it sends its request or reads its response. After that time the
        /// permit is released and reported lost. By default the time is unbounded, so a client that stops reading or
        /// sending keeps its permit until it hangs up. [`with_on_lost`](Self::with_on_lost) sets whether the request
        /// continues if its client does.
        ///
        /// # The request's body
        ///
        /// Until the response's head, the time counts while the handler waits for the body. It starts again with each
        /// kibibyte (1,024 bytes), so a client that sends single bytes stalls too. It does not count while the handler
        /// does not read, nor after the head, because each side of a bidirectional stream may be quiet.
        ///
        /// - The wait begins when the handler polls the body and finds no data, and ends with its next poll. So set no
        ///   bound for a handler that gives up a read, as `select!` does, and works on before it reads again.
        /// - A client that waits for the first bytes of the response before it sends more stalls too. So set no bound
        ///   for a gateway of bidirectional streams.
        /// - With the feature `axum` the layer watches bodies of axum (`axum::body::Body`).
        /// - The layer cannot watch other bodies, because it cannot replace them. In tonic and hyper, put
        ///   [`RequestBody::watch`](crate::RequestBody::watch) between the layer and the service.
        ///
        /// # The response's body
        ///
        /// The time counts before the server polls the body for the first time, and after each frame until it polls for
        /// the next one. A server first fills its buffers and those of the system, so a stall in a slow stream is
        /// noticed late, or never. The time in which a handler has nothing to send does not count. Has no effect with
        /// [`ReleaseAt::Head`](crate::ReleaseAt).
        ///
        /// # Panics
        ///
        /// Outside of a Tokio runtime, the future panics when it returns a response, and a request's body panics when
        /// it has to wait for its client.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*; use std::time::Duration;
        #[doc = concat!("let layer = ", $new, ".with_max_stall(Duration::from_secs(30));")]
        /// ```
        pub fn with_max_stall(mut self, max_stall: std::time::Duration) -> Self {
            self.settings_mut().max_stall = Some(max_stall);
            self
        }

        /// Sets the name of a unit of the limits, which the field `RateLimit-Policy` has as its parameter `qu`. The
        /// default, `concurrent-requests`, is right if every request has weight 1.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*;
        #[doc = concat!("let layer = ", $new, ".with_quota_unit(\"16-tokens\");")]
        /// ```
        pub fn with_quota_unit(mut self, unit: impl Into<std::borrow::Cow<'static, str>>) -> Self {
            let settings = self.settings_mut();
            settings.fields = std::sync::Arc::new(settings.fields.with_unit(unit.into()));
            self
        }

        /// Sets when a permit is released. The default is [`ReleaseAt::BodyEnd`](crate::ReleaseAt).
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

        /// Sets the function that makes the response to a request that is not admitted. The default is
        /// [`Rejection::into_response`](crate::Rejection::into_response). The [`Rejection`](crate::Rejection) has the
        /// request's head, the policy and the reason.
        ///
        /// The response may have any body of bytes: a `String`, `http_body_util::Full`, axum's
        /// `Body`. So the response that axum's `IntoResponse` makes needs no conversion.
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

        /// Sets how many bytes of a refused request's body are read, and for how long. The default is 8 MiB and 30
        /// seconds. With 0 bytes nothing is read.
        ///
        /// If an HTTP/1 server has not read a request to its end, it closes the connection, and the system resets
        /// it. Many clients send first and read later, so they see a broken connection instead of the refusal. nginx
        /// answers such a request with 502 and counts the server as failed, so other clients' requests fail too.
        /// Therefore the response is sent at once, and a task reads and drops the rest of the body. The connection then
        /// serves further requests.
        ///
        /// If the `Content-Length` is above the bound, nothing is read, and the response has `Connection: close`. The
        /// connection stays open for two seconds, so that a client that reads while it sends finds the response. The
        /// same time applies when a body without a length exceeds the bound.
        ///
        /// - An account at its limit can make the service receive these bytes again and again. Behind a proxy that
        ///   buffers requests, set the proxy's bound here too: in nginx, `client_max_body_size`.
        /// - A graceful shutdown of the server waits for the task too.
        /// - Over HTTP/2 and later nothing is read, because a refusal ends only its own stream. Nothing is read of a
        ///   request with `Expect: 100-continue` either, because its client has not sent the body.
        /// - Outside of a Tokio runtime nothing is read.
        /// - Around a client, a refused request was never sent, so nothing should be read. A request counts as a
        ///   client's if its URI names a host and it has no `Host` header. If your client sends other requests, set 0.
        ///
        /// # Panics
        ///
        /// The task panics in a Tokio runtime without time.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*; use std::time::Duration;
        #[doc = concat!("let layer = ", $new)]
        ///     .with_max_drain(64 << 20, Duration::from_secs(60));
        /// ```
        pub fn with_max_drain(mut self, bytes: u64, time: std::time::Duration) -> Self {
            let drain = $crate::reject::Drain::new(bytes, time);
            self.settings_mut().drain = drain;
            self
        }

        /// Obeys the `Retry-After` of the inner service, for a layer around a *client*. A response with status 429 or
        /// 503 pauses the key of its request under `policy`, for the time that `Retry-After` names and
        /// for `max` at most. So every process that shares the store stops sending, and waiters keep their places.
        /// The guide's chapter `pauses` has the rules and a whole client. A later call replaces an earlier one.
        ///
        /// - `Retry-After` is a number of seconds, or a date. A date counts from the `Date` of the response if it has
        ///   one, otherwise from now. Zero, a past date and any other text pause nothing.
        /// - Rejections of this crate in the same process pause nothing. They may come from an inner limit.
        /// - The response waits until the store has answered the pause, for 100 ms at most, so that no request is
        ///   admitted after the caller has the response. A pause that is later goes on in a task. With the feature
        ///   `tracing` a late or failed pause is a warning in the log. Neither changes the response.
        /// - The permit is held until the store has answered, even with
        ///   [`ReleaseAt::Head`](crate::ReleaseAt::Head).
        /// - If the request holds no permit under `policy`, nothing is paused, and the mistake is logged once.
        /// - [In shadow](Self::with_shadow) the pause counts for the narrowest limit of a request, and the requests of
        ///   this layer run all the same. A layer in force with the same policy in the same store obeys the pause.
        ///
        /// # Panics
        ///
        /// A response that pauses a key panics outside of a Tokio runtime with time enabled.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*; use std::time::Duration;
        #[doc = concat!("let layer = ", $new)]
        ///     .with_policy("upstream")
        ///     .with_cooldown("upstream", Duration::from_secs(300));
        /// ```
        pub fn with_cooldown(
            mut self,
            policy: impl Into<$crate::semaphore::Policy>,
            max: std::time::Duration,
        ) -> Self {
            let cooldown = $crate::settings::Cooldown::new(policy.into(), max);
            self.settings_mut().cooldown = Some(cooldown);
            self
        }
    };
}

/// Defines the modifiers of every layer, as [`settings_methods`] does.
macro_rules! claim_methods {
    ($new:literal, $wait:literal) => {
        /// Sets the policy under which permits are counted: `concurrency` unless set. Two layers
        /// over one store that have the same policy share the permits of a key; layers of
        /// different policies do not. Clients read the policy's name in the RateLimit fields.
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

        /// Sets how long a request may wait in the queue of its key, which is first come, first
        /// served across all processes of the store.
        ///
        #[doc = $wait]
        ///
        /// # Panics
        ///
        /// A request that waits outside of a Tokio runtime with time enabled panics.
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

        /// Sets how many requests of one key may wait at a time, in all processes of the store:
        /// [`DEFAULT_MAX_WAITING`](crate::semaphore::DEFAULT_MAX_WAITING) unless set. Further requests are refused at
        /// once with status 429, except those whose [head start](crate::Claim::with_head_start) puts them before enough
        /// other requests.
        ///
        /// [`Claim::with_max_waiting`](crate::Claim::with_max_waiting) lists the costs of a waiter.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*; use std::time::Duration;
        #[doc = concat!("let layer = ", $new)]
        ///     .with_wait(Duration::from_secs(2))
        ///     .with_max_waiting(50);
        /// ```
        pub fn with_max_waiting(mut self, max_waiting: u32) -> Self {
            self.settings_mut().max_waiting = max_waiting;
            self
        }

        /// Makes the queues of wider limits fair to keys. If a request is under several limits, the key of the first
        /// claim, for example the account, becomes the flow of each later claim that names no
        /// [flow](crate::Claim::with_flow). So no account waits behind another account's crowd at the limit of the
        /// route or the fleet. Later claims keep their [share](crate::Claim::with_share), but are not valid with a
        /// [head start](crate::Claim::with_head_start). With one limit this has no effect: the extractor names the
        /// flows of a shared key.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*;
        #[doc = concat!("let layer = ", $new, ".with_fair_queues();")]
        /// ```
        pub fn with_fair_queues(mut self) -> Self {
            self.settings_mut().has_fair_queues = true;
            self
        }

        /// Sets how long a request may hold its permit. After that time the permit is released and reported lost,
        /// whatever its request does then. By default the time is unbounded. To end only the permits of clients that
        /// stall, use [`with_max_stall`](crate::ConcurrencyLimitLayer::with_max_stall).
        /// [`with_on_lost`](Self::with_on_lost) sets whether the request continues.
        ///
        /// # Panics
        ///
        /// A request that is admitted outside of a Tokio runtime panics.
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

        /// Sets what happens to a request whose permit is lost, before its response's head and after it. By default,
        /// [`OnLost::Finish`](crate::OnLost), the request continues.
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

        /// Sets whether the limit is in shadow, to try it before it is in force: false by default. In shadow every
        /// request is admitted at once, and waits neither for a round trip to the store nor during an outage. With the
        /// feature `metrics`, requests that the limit would have refused are counted in
        /// `tower_semaphore.shadow_refusals`. With the feature `tracing`, they are logged in an
        /// [event](crate::observe#events).
        ///
        /// The limit is tried beside each request: the layer makes the request's claims to the store, and holds their
        /// permit for as long as the request holds its own. A request that would have been refused holds nothing. If
        /// the claims have to wait, their permit is held after the wait for as long as the request lasts, even if the
        /// request has ended by that time. A layer in shadow and a layer in force share the permits of a key if they
        /// have the same store and the same policy.
        ///
        /// - The handler finds a [`Permit`](crate::Permit) that [is in shadow](crate::Permit::is_shadow) and is never
        ///   lost. Responses have no RateLimit fields, because clients should not adapt to a limit that is not in
        ///   force. `with_max_hold` and `with_max_stall` end the permit in the store, but no response.
        /// - A request with a wrong key, or with a claim that no store can grant, is admitted and counted
        ///   too.
        /// - The trial differs from a limit in force, because more requests run at a time and may take longer, and
        ///   because refused clients do not try again. A request that ends before its wait would have ended counts as
        ///   done, not as given up.
        /// - The handler may [`resize`](crate::Permit::resize) the permit to any weight. A weight above the limit
        ///   is counted as `invalid`.
        /// - A layer may have 50,000 claims under way beside their requests: claims that are queued, and claims that
        ///   the store did not answer at once. Further claims are counted as `overloaded`. In the queues of a store,
        ///   `max_waiting_total` bounds claims in shadow separately from claims in force.
        /// - Outside of a Tokio runtime a claim that the store does not answer at once is counted as
        ///   `unavailable`.
        ///
        /// # Examples
        ///
        /// ```
        /// # use tower_semaphore::*;
        #[doc = concat!("let layer = ", $new, ".with_shadow(true);")]
        /// ```
        pub fn with_shadow(mut self, shadow: bool) -> Self {
            self.settings_mut().shadow = shadow.then(std::sync::Arc::default);
            self
        }
    };
}

/// Defines the accessors of a service with a field `inner`. `$service` is an expression of the service around
/// `"market"`.
macro_rules! inner_service_methods {
    ($service:literal) => {
        /// The inner service.
        ///
        /// # Examples
        ///
        /// ```
        /// # use {tower::Layer, tower_semaphore::*};
        #[doc = concat!("let mut service = ", $service, ";")]
        /// assert_eq!(*service.get_ref(), "market");
        /// *service.get_mut() = "bazaar";
        /// assert_eq!(service.into_inner(), "bazaar");
        /// ```
        pub fn get_ref(&self) -> &S {
            &self.inner
        }

        /// The inner service, to change it. See [`get_ref`](Self::get_ref) for an example.
        pub fn get_mut(&mut self) -> &mut S {
            &mut self.inner
        }

        /// The inner service, without the limit. If this service holds a permit, the permit is released. See
        /// [`get_ref`](Self::get_ref) for an example.
        pub fn into_inner(self) -> S {
            self.inner
        }
    };
}

pub(crate) use {claim_methods, inner_service_methods, settings_methods};
