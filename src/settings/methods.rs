//! The `with_*` methods that the layers have.

/// Defines the `with_*` methods of a layer for HTTP, which has a method `settings_mut`. `$new` is an expression that
/// makes such a layer, for the examples. `$wait` is the paragraph about the default in the doc of `with_wait`.
macro_rules! settings_methods {
    ($new:literal, $wait:literal) => {
        $crate::settings::claim_methods!($new, $wait);

        /// Sets how long a client may stall while it sends its request or reads its response. After that time the
        /// permit is released and reported lost. By default the time is unbounded, so a client that stops reading or
        /// sending keeps its permit until it hangs up. If the client resumes after the loss, the request goes on,
        /// unless [`with_on_lost`](Self::with_on_lost) ends it.
        ///
        /// # The request's body
        ///
        /// The clock runs while the handler waits for data of the body, and stands still while it does not read. Each
        /// kibibyte (1,024 bytes) that the handler receives resets the clock, so a client that sends single bytes
        /// stalls too. The response's head stops the clock for good, because after it each side of a bidirectional
        /// stream may be quiet.
        ///
        /// - If a handler gives up a read, as `select!` does, the clock runs on until the handler reads again, and so
        ///   the handler's own work counts as a stall. Set no bound for such a handler.
        /// - A client also stalls if it sends nothing more until the response begins. So set no bound for a gateway of
        ///   bidirectional streams.
        /// - With the feature `axum` the layer watches bodies of axum (`axum::body::Body`).
        /// - The layer cannot watch other bodies, because it cannot replace them. In tonic and hyper, put
        ///   [`RequestBody::watch`](crate::RequestBody::watch) between the layer and the service.
        ///
        /// # The response's body
        ///
        /// The clock runs while the server does not ask for data: from the response's head to the first poll of the
        /// body, and from each frame to the next poll. It stands still while the handler has nothing to send. A server
        /// first fills its buffers and those of the system, so a stall in a slow stream is noticed late, or never.
        ///
        /// With [`ReleaseAt::Head`](crate::ReleaseAt) the body holds no permit, so it is not watched.
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

        /// Sets the name of what the limits count. Clients find it in the parameter `qu` of the field
        /// `RateLimit-Policy`. The default, `concurrent-requests`, is right if every request has weight 1.
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
        /// connection stays open for two seconds, so that a client that reads while it sends finds the response. It
        /// also stays open for two seconds after a body without a length has exceeded the bound.
        ///
        /// - An account at its limit can make the service receive these bytes again and again. Behind a proxy that
        ///   buffers requests, set the proxy's bound here too: in nginx, `client_max_body_size`.
        /// - A graceful shutdown of the server waits for the task too.
        /// - Over HTTP/2 and later nothing is read, because a refusal ends only its own stream. Nothing is read of a
        ///   request with `Expect: 100-continue` either, because its client has not sent the body.
        /// - Outside of a Tokio runtime nothing is read.
        /// - If the layer wraps an HTTP client, a refused request was never sent, so its body is not read. The layer
        ///   recognizes such a request by a URI with a host and the lack of a `Host` header. If your client's requests
        ///   differ, set 0 bytes.
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

        /// Obeys the `Retry-After` of the inner service, for a layer around a *client*. Off by default. A response with
        /// status 429 or 503 pauses the key of its request under `policy`, for the time in `Retry-After` but at most
        /// for `max`. So every process that shares the store stops sending, and waiters keep their places. The guide's
        /// chapter `pauses` has the rules and a whole client. A second call replaces `policy` and `max`.
        ///
        /// - `Retry-After` is a number of seconds, or a date. The time to a date is measured from the response's
        ///   `Date`, or from now if it has none. Zero, a past date and any other text pause nothing.
        /// - Rejections of this crate in the same process pause nothing, because they may come from an inner limit.
        /// - The response waits for the store's answer to the pause, for at most 100 ms, so that no request is admitted
        ///   once the caller has the response. If the store needs longer, a task waits for its answer instead.
        /// - If the store fails or is late, the response is unchanged. The feature `tracing` logs a warning.
        /// - The permit is held until the store has answered, even with
        ///   [`ReleaseAt::Head`](crate::ReleaseAt::Head).
        /// - If the request holds no permit under `policy`, nothing is paused, and the mistake is logged once.
        /// - [In shadow](Self::with_shadow) the key is paused if the trial holds its permit when the response arrives.
        ///   The layer itself still admits all requests. A layer in force with the same store and policy obeys the
        ///   pause.
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

/// Defines the `with_*` methods that all layers have. See [`settings_methods`] for the arguments.
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
        /// once with status 429, unless a [head start](crate::Claim::with_head_start) or a
        /// [flow](crate::Claim::with_flow) puts them among the first `max_waiting`.
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

        /// Serves accounts in turn at limits that they share, such as the limit of a route or of the fleet. So no
        /// account waits behind another account's crowd. Off by default.
        ///
        /// This applies to requests that make several claims, for example for the account, the route and the fleet. The
        /// key of the first claim becomes the [flow](crate::Claim::with_flow) of each later claim that has no flow.
        ///
        /// - Later claims may have a [share](crate::Claim::with_share). A later claim with a
        ///   [head start](crate::Claim::with_head_start) is refused as invalid, because a flow has none.
        /// - A request with one claim is not affected. If tenants share its key, set the claim's flow in the extractor.
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

        /// Sets how long a request may hold its permit. After that time the permit is released and reported lost. The
        /// request continues, unless [`with_on_lost`](Self::with_on_lost) ends it. By default the time is unbounded.
        /// To end only the permits of clients that stall, use
        /// [`with_max_stall`](crate::ConcurrencyLimitLayer::with_max_stall).
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

        /// Sets whether the limit is in shadow, to try it before it is in force. Off by default. In shadow every
        /// request is admitted at once, and waits neither for a round trip to the store nor during an outage. With the
        /// feature `metrics`, requests that the limit would have refused are counted in
        /// `tower_semaphore.shadow_refusals`. With the feature `tracing`, they are logged in an
        /// [event](crate::observe#events).
        ///
        /// Beside each request runs a trial: the layer makes the request's claims to the store, and holds the permit
        /// that they get for as long as the request holds its own. If the claims first wait in the queue, the time of
        /// holding begins and ends later by that wait, as if the request had begun only then. If the claims are
        /// refused, the trial holds nothing. A layer in shadow and a layer in force share the permits of a key if they
        /// have the same store and the same policy.
        ///
        /// - The handler finds a [`Permit`](crate::Permit) that [is in shadow](crate::Permit::is_shadow) and is never
        ///   lost. Responses have no RateLimit fields, because clients should not adapt to a limit that is not in
        ///   force. `with_max_hold` and `with_max_stall` end the permit in the store, but no response.
        /// - A request with a wrong key, or with a claim that no store can grant, is admitted, and counted as refused.
        /// - The trial differs from a limit in force: more requests run at a time and may take longer, and no refused
        ///   client tries again. If a request ends while its claims wait, the trial assumes that it was served, not
        ///   that its client gave up, so the claims stay in the queue.
        /// - The handler may [`resize`](crate::Permit::resize) the permit to any weight. A weight above the limit
        ///   is counted as `invalid`.
        /// - A layer runs at most 50,000 trials whose claims were queued, or were not answered by the store at once.
        ///   Each of them counts until its permit ends. Further such requests are counted as `overloaded`.
        /// - In the queues of a store, `max_waiting_total` bounds claims in shadow separately from claims in force.
        /// - Outside of a Tokio runtime a request whose claims the store does not answer at once is counted as
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

/// Defines the accessors of a service with a field `inner`. `$service` is an expression that makes such a service, for
/// the example. Its inner service is the string `"market"`.
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
