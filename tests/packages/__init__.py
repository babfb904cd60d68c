# SPDX-License-Identifier: Apache-2.0
"""What a release is made of, built from this tree, installed where no checkout is, and tried there."""
