"""The long run: millions of keys, for as long as you like; does it stay as it is?"""
