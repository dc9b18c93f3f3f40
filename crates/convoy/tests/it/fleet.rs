//! Several servers on one store, in this process: who is a member, and what they store.
//!
//! Every story runs on the embedded store and on etcd. Servers are paused, cut off and crashed one by one through the
//! fault wrapper; `history` judges everything that was ever stored. Long forms: `cargo xtask soak fleet-…`.
//! Servers as processes of their own are in [`crate::fleet_processes`].

mod agreement;
mod chaos;
mod collection;
mod custom;
mod denials;
mod gate;
pub mod ground;
pub mod hand;
pub mod history;
mod identity;
pub mod load;
mod measures;
mod members;
mod objects;
mod pauses;
mod peers;
mod proxy;
pub mod rolling;
mod skew;
mod unsafe_steps;

/// Runs a story on both stores.
macro_rules! on_both_stores {
    ($($(#[$doc:meta])* $story:ident),+ $(,)?) => {
        mod embedded {
            $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() {
                super::$story(crate::fleet::ground::Ground::embedded()).await;
            })+
        }
        mod etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() {
                if let Some(ground) = crate::fleet::ground::Ground::etcd().await {
                    super::$story(ground).await;
                }
            })+
        }
    };
}
pub(crate) use on_both_stores;

/// Runs a story of migrations once more, by requests to a server that migrates nothing by itself.
macro_rules! through_api_too {
    ($($(#[$doc:meta])* $story:ident),+ $(,)?) => {
        mod through_api {
            mod embedded {
                $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $story() {
                    let ground = $crate::fleet::ground::Ground::embedded();
                    super::super::$story(ground.through_api()).await;
                })+
            }
            mod etcd {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $story() {
                    if let Some(ground) = $crate::fleet::ground::Ground::etcd().await {
                        super::super::$story(ground.through_api()).await;
                    }
                })+
            }
        }
    };
}
pub(crate) use through_api_too;
