# SPDX-License-Identifier: Apache-2.0
"""The plugin for Watcher in Watcher's own decision engine, with Debian's Prometheus. Nova is not asked."""
