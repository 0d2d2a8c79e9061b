//! The reflector of kube-rs as a contestant of the benchmarks.
//!
//! `peer KUBECONFIG NAMESPACE` keeps a cache of the namespace's pods. It prints "watching" once the cache is filled,
//! and "ended" when its stream has a pod that failed.

use std::{env, error::Error, pin::pin};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{
        reflector,
        watcher::{self, watcher},
    },
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let kubeconfig = Kubeconfig::read_from(arguments.next().ok_or("KUBECONFIG is missing")?)?;
    let namespace = arguments.next().ok_or("NAMESPACE is missing")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config)?, &namespace);
    let (_cache, writer) = reflector::store();
    let mut events = pin!(reflector(writer, watcher(pods, watcher::Config::default())));
    while let Some(event) = events.try_next().await? {
        match event {
            watcher::Event::InitDone => println!("watching"),
            watcher::Event::Apply(pod) if has_failed(&pod) => {
                println!("ended");
                return Ok(());
            }
            _ => {}
        }
    }
    Err("the watch ended".into())
}

fn has_failed(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Failed")
}
