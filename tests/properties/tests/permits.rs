//! Steps that release, clone or end a permit.

use crate::{
    case::{Case, Handle, Outcome},
    driver::{Driver, end},
};
use proptest::{prelude::*, sample::Index};

impl<W: Driver> Case<'_, W> {
    pub(crate) async fn release(&mut self, index: Index) -> Outcome {
        if let Some(Handle {
            id, key, permit, ..
        }) = self.take(index)
        {
            let was_held = permit.release().await;
            prop_assert_eq!(
                was_held,
                self.models[key].end(id),
                "the answer of a release"
            );
        }
        Ok(())
    }

    pub(crate) fn drop(&mut self, index: Index) {
        if let Some(Handle { id, key, .. }) = self.take(index)
            && self.handles.iter().all(|handle| handle.id != id)
        {
            self.models[key].end(id);
        }
    }

    pub(crate) fn clone(&mut self, index: Index) {
        if let Some(handle) = self.choose(index) {
            let handle = self.handles[handle].clone();
            self.handles.push(handle);
        }
    }

    pub(crate) async fn end(&mut self, index: Index) {
        if let Some(handle) = self.choose(index) {
            let Handle {
                id, key, permit, ..
            } = &self.handles[handle];
            end(permit).await;
            self.models[*key].end(*id);
            self.ended.insert(*id);
        }
    }

    pub(crate) async fn expire(&mut self, index: Index, listed: bool) {
        if let Some(handle) = self.choose(index) {
            let Handle {
                id,
                key,
                name,
                permit,
            } = &self.handles[handle];
            self.driver.expire(*key, name, permit, listed).await;
            self.models[*key].end(*id);
            self.ended.insert(*id);
        }
    }
}
