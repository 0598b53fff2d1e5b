//! The time for which a response keeps its permit.

use crate::{
    body::{PermitGuard, ResponseBody},
    semaphore::{LayerPermit, Permit, SyncFuture},
    settings::Settings,
};
use http::Response;
use http_body::Body;
use std::{
    convert::Infallible,
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

/// The time for which a response of type `T` keeps its permit: [`UntilDropped`] or [`UntilBodyEnd`]. Sealed, because no
/// other crate can name a `Holding`.
pub trait Hold<T> {
    /// The response with its permit.
    type Response;

    /// Moves the permit into the response. An exempt request has none.
    fn hold(response: T, holding: Option<Holding>) -> Self::Response;
}

/// A permit that moves into a response.
pub struct Holding {
    pub(super) permit: Permit,
    /// Resolves when the permit is lost. `None` if the loss ends nothing.
    pub(super) lost: Option<SyncFuture<()>>,
    pub(super) settings: Arc<Settings>,
}

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holding").finish_non_exhaustive()
    }
}

/// A response keeps its permit until it is dropped, as a [`Held`]. See the [module docs](super).
#[derive(Debug)]
pub struct UntilDropped(Infallible);

/// An `http::Response` keeps its permit until its body ends. See the [module docs](super).
#[derive(Debug)]
pub struct UntilBodyEnd(Infallible);

impl<T> Hold<T> for UntilDropped {
    type Response = Held<T>;

    fn hold(response: T, holding: Option<Holding>) -> Held<T> {
        Held {
            response,
            permit: holding.map(|holding| holding.permit),
        }
    }
}

impl<B: Body> Hold<Response<B>> for UntilBodyEnd {
    type Response = Response<ResponseBody<B>>;

    fn hold(response: Response<B>, holding: Option<Holding>) -> Response<ResponseBody<B>> {
        let guard = holding.and_then(|holding| {
            let Holding {
                permit,
                lost,
                settings,
            } = holding;
            let permit = LayerPermit::new(permit);
            PermitGuard::new(permit, lost, None, response.headers(), &settings)
        });
        response.map(|body| ResponseBody::new(body, guard))
    }
}

/// A response that keeps its permit until it is dropped. Dereferences to the response.
///
/// # Examples
///
/// See the [module docs](super).
#[derive(Debug)]
#[must_use = "dropping it releases the permit"]
pub struct Held<T> {
    response: T,
    permit: Option<Permit>,
}

impl<T> Held<T> {
    /// The permit. `None` if the request was exempt.
    pub fn permit(&self) -> Option<&Permit> {
        self.permit.as_ref()
    }

    /// The response without the permit, which is released unless it has other clones.
    pub fn into_inner(self) -> T {
        self.response
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.response
    }
}

impl<T> DerefMut for Held<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.response
    }
}
