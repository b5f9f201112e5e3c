"""Kernel -> microseconds: networks, trees and recall of measured kernels, by group."""
