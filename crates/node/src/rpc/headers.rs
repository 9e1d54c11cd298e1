//! What comes with every call in its metadata: the id of the node that it is for, and the cluster's secret.
//!
//! An address says little about who listens there: another node may have got it since, or two nodes may announce the
//! same. A node refuses what is not for it.

use super::incoming::Caller;
use super::secret::Secret;
use terrace_cluster::NodeId;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

const RECEIVER: &str = "cluster-node";

/// See the module: of calls to one node.
#[derive(Debug, Clone)]
pub(super) struct Headers {
    /// As it is sent; `None` only if an id were no ASCII, and then nothing is received.
    receiver: Option<MetadataValue<Ascii>>,
    secret: Secret,
}

impl Headers {
    /// Of calls to `receiver`.
    pub fn new(receiver: NodeId, secret: Secret) -> Self {
        Self { receiver: receiver.to_string().parse().ok(), secret }
    }

    /// Adds them to a call.
    pub fn sign<T>(&self, message: T) -> Request<T> {
        let mut request = self.secret.sign(message);
        if let Some(receiver) = &self.receiver {
            request.metadata_mut().insert(RECEIVER, receiver.clone());
        }
        request
    }
}

/// Refuses calls without the secret, and those for another node, before their message is read.
impl Interceptor for Headers {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let request = self.secret.call(request)?;
        let named = request.metadata().get(RECEIVER);
        match named.is_some() && named == self.receiver.as_ref() {
            true => {
                if let Some(caller) = request.extensions().get::<Caller>() {
                    caller.let_in();
                }
                Ok(request)
            }
            false => Err(Status::failed_precondition("the call is for another node")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_takes_only_what_is_for_it_and_has_the_secret() {
        let of = |node: u8, secret: &str| {
            Headers::new(NodeId([node; 20]), Secret::new(secret).unwrap_or_default())
        };
        let code =
            |own: &mut Headers, request: Request<()>| own.call(request).map_err(|it| it.code());
        let mut own = of(1, "s3cret");
        assert!(own.call(of(1, "s3cret").sign(())).is_ok());
        for (other, want) in [
            (of(2, "s3cret").sign(()), tonic::Code::FailedPrecondition),
            (Secret::new("s3cret").unwrap_or_default().sign(()), tonic::Code::FailedPrecondition),
            (of(1, "other").sign(()), tonic::Code::Unauthenticated),
            (of(1, "").sign(()), tonic::Code::Unauthenticated),
        ] {
            assert_eq!(code(&mut own, other).err(), Some(want));
        }
        let mut open = of(1, "");
        assert!(open.call(of(1, "").sign(())).is_ok());
        assert!(open.call(Request::new(())).is_err(), "it names nobody");
    }
}
